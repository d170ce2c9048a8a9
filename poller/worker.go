package poller

// start runs a job on a worker: one that has nothing to do, or else a new one. A
// goroutine that is used again has its stack already, which for work that is
// mostly HTTP is a good part of its cost.
func (s *session) start(j *job) {
	select {
	case s.jobs <- j:
	default:
		s.tasks.Go(func() { s.runJobs(j) })
	}
}

// runJobs does one job after the other until polling ends, or as many workers as a
// lane has tasks wait for one already.
func (s *session) runJobs(j *job) {
	for {
		s.do(j)
		if s.parked.Add(1) > int64(s.board.lanes) {
			s.parked.Add(-1)
			return
		}
		select {
		case j = <-s.jobs:
			s.parked.Add(-1)
		case <-s.polling.Done():
			s.parked.Add(-1)
			return
		}
	}
}
