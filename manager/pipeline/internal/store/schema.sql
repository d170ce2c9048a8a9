CREATE TABLE IF NOT EXISTS runs (
  account    TEXT NOT NULL,
  id         TEXT NOT NULL,
  number     BIGINT NOT NULL,
  pipeline   TEXT NOT NULL,
  status     TEXT NOT NULL,
  branch     TEXT NOT NULL,
  cause      TEXT NOT NULL,
  search     TEXT NOT NULL,
  created    BIGINT NOT NULL,
  ended      BIGINT NOT NULL,
  size       BIGINT NOT NULL,
  version    BIGINT NOT NULL,
  definition @blob@ NOT NULL,
  state      @blob@ NOT NULL,
  PRIMARY KEY (account, id)
);
CREATE INDEX IF NOT EXISTS runs_time     ON runs (account, created, id, pipeline, status, branch);
CREATE INDEX IF NOT EXISTS runs_pipeline ON runs (account, pipeline, created, id);
CREATE INDEX IF NOT EXISTS runs_status   ON runs (account, status, created, id);
CREATE INDEX IF NOT EXISTS runs_branch   ON runs (account, branch, created, id);
CREATE INDEX IF NOT EXISTS runs_ended    ON runs (ended, size) WHERE ended > 0;
CREATE INDEX IF NOT EXISTS runs_active   ON runs (account) WHERE ended = 0;
CREATE TABLE IF NOT EXISTS numbers (
  account  TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  number   BIGINT NOT NULL,
  PRIMARY KEY (account, pipeline)
);
CREATE TABLE IF NOT EXISTS marks (
  account TEXT NOT NULL,
  kind    TEXT NOT NULL,
  name    TEXT NOT NULL,
  value   TEXT @bytewise@ NOT NULL,
  created BIGINT NOT NULL,
  run     TEXT NOT NULL,
  PRIMARY KEY (account, kind, name, value, created, run)
) @indexed@;
CREATE INDEX IF NOT EXISTS marks_run ON marks (account, run);
CREATE TABLE IF NOT EXISTS nodes (
  account TEXT NOT NULL,
  run     TEXT NOT NULL,
  path    TEXT NOT NULL,
  version BIGINT NOT NULL,
  data    @blob@ NOT NULL,
  PRIMARY KEY (account, run, path)
);
CREATE INDEX IF NOT EXISTS nodes_version ON nodes (account, run, version);
CREATE TABLE IF NOT EXISTS messages (
  id      @serial@,
  topic   TEXT NOT NULL,
  account TEXT NOT NULL,
  run     TEXT NOT NULL,
  name    TEXT NOT NULL UNIQUE,
  lane    TEXT NOT NULL,
  ready   BIGINT NOT NULL,
  tries   BIGINT NOT NULL,
  owner   TEXT NOT NULL,
  problem TEXT NOT NULL,
  data    @blob@ NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_ready ON messages (topic, ready, id);
CREATE INDEX IF NOT EXISTS messages_lane  ON messages (topic, lane, id) WHERE lane <> '';
CREATE INDEX IF NOT EXISTS messages_run   ON messages (account, run);
CREATE TABLE IF NOT EXISTS stages (
  account TEXT NOT NULL,
  stage   TEXT NOT NULL,
  run     TEXT NOT NULL,
  node    TEXT NOT NULL,
  attempt BIGINT NOT NULL,
  renewed BIGINT NOT NULL,
  target  @blob@ NOT NULL,
  PRIMARY KEY (account, stage)
);
CREATE TABLE IF NOT EXISTS steps (
  account TEXT NOT NULL,
  stage   TEXT NOT NULL,
  step    TEXT NOT NULL,
  node    TEXT NOT NULL,
  attempt BIGINT NOT NULL,
  reported BIGINT NOT NULL,
  PRIMARY KEY (account, stage, step)
);
CREATE INDEX IF NOT EXISTS stages_renewed ON stages (renewed);
CREATE INDEX IF NOT EXISTS stages_run     ON stages (account, run);
CREATE TABLE IF NOT EXISTS objects (
  account TEXT NOT NULL,
  kind    TEXT NOT NULL,
  id      TEXT NOT NULL,
  version BIGINT NOT NULL,
  size    BIGINT NOT NULL,
  due     BIGINT NOT NULL,
  updated BIGINT NOT NULL,
  data    @blob@ NOT NULL,
  PRIMARY KEY (account, kind, id)
);
CREATE INDEX IF NOT EXISTS objects_due ON objects (kind, due) WHERE due > 0;
CREATE TABLE IF NOT EXISTS statuses (
  account TEXT NOT NULL,
  slot    TEXT NOT NULL,
  run     TEXT NOT NULL,
  version BIGINT NOT NULL,
  updated BIGINT NOT NULL,
  due     BIGINT NOT NULL,
  data    @blob@ NOT NULL,
  PRIMARY KEY (account, slot)
);
CREATE INDEX IF NOT EXISTS statuses_due     ON statuses (due) WHERE due > 0;
CREATE INDEX IF NOT EXISTS statuses_run     ON statuses (account, run);
CREATE INDEX IF NOT EXISTS statuses_updated ON statuses (updated);
CREATE TABLE IF NOT EXISTS deliveries (
  account TEXT NOT NULL,
  hook    TEXT NOT NULL,
  name    TEXT NOT NULL,
  run     TEXT NOT NULL,
  at      BIGINT NOT NULL,
  PRIMARY KEY (account, hook, name)
);
CREATE INDEX IF NOT EXISTS deliveries_at   ON deliveries (at);
CREATE INDEX IF NOT EXISTS deliveries_rate ON deliveries (account, hook, at);

CREATE TABLE IF NOT EXISTS ended (
  account  TEXT NOT NULL,
  id       TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  status   TEXT NOT NULL,
  branch   TEXT NOT NULL,
  search   TEXT NOT NULL,
  ended    BIGINT NOT NULL,
  size     BIGINT NOT NULL,
  head     @blob@ NOT NULL,
  detail   @blob@ NOT NULL,
  PRIMARY KEY (account, ended, id, pipeline, status, branch)
);
CREATE INDEX IF NOT EXISTS ended_id       ON ended (account, id, ended);
CREATE INDEX IF NOT EXISTS ended_pipeline ON ended (account, pipeline, ended, id);
CREATE INDEX IF NOT EXISTS ended_status   ON ended (account, status, ended, id);
CREATE INDEX IF NOT EXISTS ended_branch   ON ended (account, branch, ended, id);
CREATE INDEX IF NOT EXISTS ended_expiry   ON ended (ended, size);
CREATE TABLE IF NOT EXISTS ended_marks (
  account TEXT NOT NULL,
  kind    TEXT NOT NULL,
  name    TEXT NOT NULL,
  value   TEXT @bytewise@ NOT NULL,
  created BIGINT NOT NULL,
  run     TEXT NOT NULL,
  PRIMARY KEY (account, kind, name, value, created, run)
) @indexed@;
CREATE INDEX IF NOT EXISTS ended_marks_expiry ON ended_marks (created);
CREATE TABLE IF NOT EXISTS cursors (
  account  TEXT NOT NULL,
  epoch    TEXT NOT NULL,
  position BIGINT NOT NULL,
  lost     BIGINT NOT NULL,
  updated  BIGINT NOT NULL,
  PRIMARY KEY (account, epoch)
);
CREATE TABLE IF NOT EXISTS outcomes (
  account  TEXT NOT NULL,
  kind     TEXT NOT NULL,
  day      BIGINT NOT NULL,
  pipeline TEXT NOT NULL,
  status   TEXT NOT NULL,
  bucket   BIGINT NOT NULL,
  number   BIGINT NOT NULL,
  PRIMARY KEY (account, kind, day, pipeline, status, bucket)
) @indexed@;
CREATE TABLE IF NOT EXISTS sizes (
  hour  BIGINT NOT NULL,
  shard BIGINT NOT NULL,
  size  BIGINT NOT NULL,
  PRIMARY KEY (hour, shard)
) @indexed@;
