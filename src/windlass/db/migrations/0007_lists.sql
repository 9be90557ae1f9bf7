-- What waits, by lane: a tenant's lists and counts read its own rows, however many others have.
-- Ready and leased rows have such indexes; of the rest few lie in `queue`, so that no move of a job pays for it.
-- Every lane is above 0: only who says so can use the index of timers, and no plan of a hot statement is drawn to it.

-- postgres

CREATE INDEX queue_waiting ON windlass.queue (lane, id) WHERE place >= 2;
CREATE INDEX timer_lane ON windlass.timer (lane, id) WHERE lane > 0;

-- sqlite

CREATE INDEX queue_waiting ON queue (lane, id) WHERE place >= 2;
CREATE INDEX timer_lane ON timer (lane, id) WHERE lane > 0;
