-- A state file as the first daemon (schema 1) committed it, killed with kill -9. LOGS is the folder of its logs.
PRAGMA user_version = 1;
CREATE TABLE counters (name TEXT, labels TEXT, value REAL NOT NULL, PRIMARY KEY (name, labels)) WITHOUT ROWID;
INSERT INTO "counters" VALUES('gpufault_incidents_total','["e2e_crash", "e2e_cause"]',4.0);
INSERT INTO "counters" VALUES('gpufault_journal_records_total','["facts"]',1.0);
INSERT INTO "counters" VALUES('gpufault_journal_records_total','["incident"]',4.0);
INSERT INTO "counters" VALUES('gpufault_last_incident_timestamp_seconds','["e2e_crash"]',1.79563989589581012723e+09);
INSERT INTO "counters" VALUES('gpufault_lines_matched_total','["e2e_crash", "job"]',7.0);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, record TEXT NOT NULL);
CREATE TABLE rows (space TEXT, name TEXT, value TEXT NOT NULL, PRIMARY KEY (space, name)) WITHOUT ROWID;
INSERT INTO "rows" VALUES('incidents','5','{"incident":{"scope":"log LOGS/turned.log","signature":"e2e_crash","gpu":null,"matches":[{"signature":"e2e_crash","source":"job","origin":"LOGS/turned.log#1","path":"LOGS/turned.log","line":1,"offset":0,"time":1795639941.7323568,"time_source":"observed","read_at":1795639941.7323568,"text":"e2e crash seq=21 of turned","captures":{"seq":"21","log":"turned"},"gpu":null,"rank":null,"job":null,"context":0},{"signature":"e2e_crash","source":"job","origin":"LOGS/turned.log","path":"LOGS/turned.log","line":2,"offset":27,"time":1795639941.7323568,"time_source":"observed","read_at":1795639941.7323568,"text":"e2e crash seq=22 of turned","captures":{"seq":"22","log":"turned"},"gpu":null,"rank":null,"job":null,"context":0}],"lines":2,"last_time":1795639941.7323568,"first_read":1795639941.7323568,"last_read":1795639941.7323568,"ranks":[]},"told":null,"contexts":[{"facts":{},"marks":{}}]}');
INSERT INTO "rows" VALUES('source files','files:LOGS/open.log','{"path":"LOGS/open.log","device":65024,"inode":10248294,"generation":356101562,"modified":1795639880676342112,"offset":48,"line":3,"mark":{"length":48,"head":"c062dd9821a9d1c8","tail":"c062dd9821a9d1c8"},"format":"plain"}');
INSERT INTO "rows" VALUES('source files','files:LOGS/tail.log','{"path":"LOGS/tail.log","device":65024,"inode":10248310,"generation":4285367653,"modified":1795639880676342112,"offset":32,"line":3,"mark":{"length":32,"head":"e4429ae5e656c6aa","tail":"e4429ae5e656c6aa"},"format":"plain"}');
INSERT INTO "rows" VALUES('source files','files:LOGS/turned.log','{"path":"LOGS/turned.log","device":65024,"inode":10248326,"generation":3374035475,"modified":1795639880676342112,"offset":54,"line":3,"mark":{"length":54,"head":"0cee6a60441494e8","tail":"0cee6a60441494e8"},"format":"plain"}');
INSERT INTO "rows" VALUES('source files','files:LOGS/turned.log#1','{"path":"LOGS/turned.log","device":65024,"inode":10248273,"generation":3234038165,"modified":1795639941720287467,"offset":27,"line":2,"mark":{"length":27,"head":"67e9d9dfd1eb8528","tail":"67e9d9dfd1eb8528"},"format":"plain"}');
INSERT INTO "rows" VALUES('source files','files:done:LOGS/done.log','{"path":"LOGS/done.log","device":65024,"inode":10248342,"generation":1103394916,"modified":1795639880676342112,"offset":39,"line":4,"mark":{"length":39,"head":"e1f915c30e8bf55f","tail":"e1f915c30e8bf55f"},"format":"plain"}');
