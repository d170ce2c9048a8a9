package logger

// reserve counts n more bytes for a log. If there is no space, it drops larger logs that
// wait.
func (d *Deliverer) reserve(k *keptLog, n int64) error {
	for {
		victim, err := d.tryReserve(k, n)
		if victim == nil {
			return err
		}
		d.drop(victim, errNoSpace)
	}
}

// tryReserve returns a log that must be dropped before, nil if there is none.
func (d *Deliverer) tryReserve(k *keptLog, n int64) (victim *keptLog, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.kept[k]
	if d.closing && !known || !known && len(d.kept) >= maxKeptLogs {
		return nil, errNoSpace
	}
	if d.bytes+n <= d.cfg.MaxBytes {
		d.kept[k] = struct{}{}
		k.size += n
		d.bytes += n
		return nil, nil
	}
	for o := range d.kept {
		if o.waiting && !o.busy && o.size > k.size+n && (victim == nil || o.size > victim.size) {
			victim = o
		}
	}
	if victim == nil {
		return nil, errNoSpace
	}
	d.dequeue(victim)
	return victim, nil
}

// forget ends the account of a log. It reports whether the log was kept.
func (d *Deliverer) forget(k *keptLog) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.kept[k]; !ok {
		return false
	}
	delete(d.kept, k)
	d.dequeue(k)
	d.bytes -= k.size
	k.size = 0
	return true
}

// drop gives a log up.
func (d *Deliverer) drop(k *keptLog, reason error) {
	d.mu.Lock()
	size := k.size
	d.dropped++
	d.mu.Unlock()
	k.remove()
	d.log.Warn().Str("account", k.target.Account).Str("log", k.target.Key).Int64("bytes", max(0, size-keptSize)).
		Time("ended", k.target.Ended).Err(reason).Msg("a log is dropped: its log service did not get it")
}
