-- The live schema of a corpus shard: what `cold unpack` creates in an empty database.
CREATE TABLE documents(
    document_root TEXT PRIMARY KEY,
    uri TEXT,
    title TEXT,
    mime TEXT,
    n_chunks INTEGER,
    added_at TEXT
);
CREATE TABLE chunks(
    document_root TEXT,
    ordinal INTEGER,
    leaf_hash TEXT NOT NULL,
    n_bytes INTEGER,
    content TEXT,
    PRIMARY KEY(document_root, ordinal)
);
CREATE INDEX chunks_leaf_hash ON chunks(leaf_hash);
CREATE TABLE merkle_nodes(
    node_hash TEXT PRIMARY KEY,
    left_hash TEXT,
    right_hash TEXT,
    level INTEGER
);
CREATE TABLE edges(
    src_root TEXT,
    edge_type TEXT,
    dst_root TEXT,
    dst_uri TEXT,
    anchor TEXT
);
CREATE TABLE audit_events(
    seq INTEGER PRIMARY KEY,
    event_type TEXT,
    payload TEXT,
    prev_hash TEXT,
    event_hash TEXT,
    at TEXT
);
CREATE TABLE derivations(
    derived_root TEXT,
    source_root TEXT,
    method TEXT,
    params TEXT
);
CREATE TABLE concept_relations(
    concept TEXT,
    relation TEXT,
    other TEXT,
    weight REAL
);
CREATE TABLE concept_token_idf(
    token TEXT PRIMARY KEY,
    idf REAL,
    n_documents INTEGER
);
CREATE TABLE providence_cache(
    claim_hash TEXT PRIMARY KEY,
    verdict TEXT,
    score REAL,
    evidence TEXT,
    at TEXT
);
CREATE TABLE citation_aliases(
    alias TEXT PRIMARY KEY,
    document_root TEXT
);
CREATE TABLE term_aliases(
    alias TEXT,
    term TEXT
);
CREATE TABLE snapshots(
    seq INTEGER PRIMARY KEY,
    snapshot_root TEXT,
    n_documents INTEGER,
    n_chunks INTEGER,
    at TEXT
);
CREATE TABLE document_http_meta(
    document_root TEXT PRIMARY KEY,
    url TEXT,
    status INTEGER,
    etag TEXT,
    last_modified TEXT,
    headers TEXT
);
CREATE VIRTUAL TABLE chunks_fts USING fts5(content, content='chunks', content_rowid='rowid');
CREATE VIRTUAL TABLE documents_fts USING fts5(title, content='documents', content_rowid='rowid');
