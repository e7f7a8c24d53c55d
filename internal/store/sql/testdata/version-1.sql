-- A store of schema version 1, as its releases left it. Never changed.
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version VALUES (1);

CREATE TABLE counter (start BIGINT NOT NULL, revision BIGINT NOT NULL);
INSERT INTO counter VALUES (4000, 4004);

CREATE TABLE resources (
	kind TEXT NOT NULL, mesh TEXT NOT NULL, name TEXT NOT NULL,
	version BIGINT NOT NULL,
	owner_kind TEXT NOT NULL, owner_mesh TEXT NOT NULL, owner_name TEXT NOT NULL,
	created BIGINT NOT NULL, modified BIGINT NOT NULL,
	body BLOB,
	PRIMARY KEY (kind, mesh, name)
);
CREATE INDEX resources_by_owner ON resources (owner_kind, owner_mesh, owner_name) WHERE owner_kind <> '';
INSERT INTO resources VALUES
	('Mesh', '', 'default', 4001, '', '', '', 1767225600000000000, 1767225600000000000, '{"spec":{}}'),
	('Secret', 'default', 's', 4004, 'Mesh', '', 'default', 1767225601000000001, 1767225604000000000, '{"spec":{"data":"c2VjcmV0"}}');

CREATE TABLE history (
	revision BIGINT NOT NULL PRIMARY KEY,
	deleted BOOLEAN NOT NULL,
	kind TEXT NOT NULL, mesh TEXT NOT NULL, name TEXT NOT NULL,
	version BIGINT NOT NULL,
	owner_kind TEXT NOT NULL, owner_mesh TEXT NOT NULL, owner_name TEXT NOT NULL,
	created BIGINT NOT NULL, modified BIGINT NOT NULL,
	body BLOB
);
CREATE INDEX history_by_kind ON history (kind, revision);
INSERT INTO history VALUES
	(4002, FALSE, 'Secret', 'default', 's', 4002, 'Mesh', '', 'default', 1767225601000000001, 1767225601000000001, '{"spec":{"data":"b2xk"}}'),
	(4003, TRUE, 'Secret', 'default', 'gone', 3999, '', '', '', 1767225600000000000, 1767225600000000000, '{}'),
	(4004, FALSE, 'Secret', 'default', 's', 4004, 'Mesh', '', 'default', 1767225601000000001, 1767225604000000000, '{"spec":{"data":"c2VjcmV0"}}');

CREATE TABLE horizon (kind TEXT NOT NULL PRIMARY KEY, revision BIGINT NOT NULL);
INSERT INTO horizon VALUES ('Mesh', 4001);
