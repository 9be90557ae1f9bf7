-- name: worn
-- Which of these tables have more than :dead_rows dead rows and are not being vacuumed; none on SQLite, which has none. Of the
-- large ones a fiftieth of the rows must be dead.
-- postgres
SELECT s.relname AS name FROM pg_stat_user_tables s
 WHERE s.schemaname = 'windlass' AND s.relname = ANY(CAST(:tables AS text[])) AND s.n_dead_tup > CAST(:dead_rows AS bigint)
   AND (s.relname <> ALL(CAST(:large AS text[])) OR s.n_dead_tup > s.n_live_tup / 50)
   AND NOT EXISTS (SELECT 1 FROM pg_stat_progress_vacuum p WHERE p.relid = s.relid AND p.datname = current_database())
 ORDER BY s.n_dead_tup DESC
-- sqlite
SELECT i.value AS name FROM json_each(:tables) AS i WHERE :dead_rows < 0 AND json_array_length(:large) < 0
