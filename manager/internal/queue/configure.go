package queue

// Configure replaces the settings, but for the clock. An empty Epoch keeps the
// one that there is. Times that run already end as they would have.
func (q *Queue) Configure(cfg Config) {
	q.mu.Lock()
	defer q.mu.Unlock()
	epoch, now := q.epoch, q.cfg.Now
	if cfg.Epoch != "" {
		epoch = cfg.Epoch
	}
	cfg.Epoch, cfg.Now = epoch, now
	cfg.setDefaults()
	q.cfg, q.epoch = cfg, epoch
}
