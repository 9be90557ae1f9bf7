-- name: free_pages
-- How many pages of the file hold nothing.
-- postgres
SELECT 0 AS pages
-- sqlite
SELECT freelist_count AS pages FROM pragma_freelist_count
