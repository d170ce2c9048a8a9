package poller

// dispatch runs a job on an idle worker, or on a new one. A goroutine that is used
// again has its stack already, which saves much of the cost of short jobs.
func (s *session) dispatch(j *job) {
	select {
	case s.jobs <- j:
	default:
		s.workers.Go(func() { s.runJobs(j) })
	}
}

// runJobs runs one job after the other. It returns when polling has ended, or when
// as many workers are idle as a kind has executors.
func (s *session) runJobs(j *job) {
	for {
		s.runJob(j)
		if s.idleWorkers.Add(1) > int64(s.table.executors) {
			s.idleWorkers.Add(-1)
			return
		}
		select {
		case j = <-s.jobs:
			s.idleWorkers.Add(-1)
		case <-s.polling.Done():
			s.idleWorkers.Add(-1)
			return
		}
	}
}
