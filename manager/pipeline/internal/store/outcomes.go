package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// outcome is what is counted of a run or a stage that has ended. Its zero value is not counted.
type outcome struct {
	account, kind    string
	day              int64 // since 1970, UTC
	pipeline, status string
	bucket           int64 // of the duration
}

// The kinds of outcomes.
const (
	RunOutcomes   = "run"
	StageOutcomes = "stage"
)

const (
	msPerDay = 24 * 60 * 60 * 1000
	// growth is the ratio of the durations at the ends of a bucket: a duration that is read from a
	// bucket differs from the real one by 5 % and a millisecond at most.
	growth = 1.1
	// noDuration is the bucket of stages that never started.
	noDuration = -1
)

func newOutcome(account, kind, pipeline, status string, started, ended time.Time) outcome {
	o := outcome{account: account, kind: kind, day: millis(ended) / msPerDay, pipeline: pipeline, status: status, bucket: noDuration}
	if !started.IsZero() {
		took := max(ended.Sub(started).Milliseconds(), 0)
		o.bucket = int64(math.Ceil(math.Log(float64(took)+1) / math.Log(growth)))
	}
	return o
}

// duration returns the middle of a bucket.
func duration(bucket int64) time.Duration {
	return time.Duration(math.Round(math.Pow(growth, float64(bucket)-0.5)-1)) * time.Millisecond
}

func (r *Run) outcome() outcome {
	if r.Ended.IsZero() {
		return outcome{}
	}
	return newOutcome(r.Account, RunOutcomes, r.Pipeline, r.Status, r.Created, r.Ended)
}

func (st *EndedStage) outcome() outcome {
	return newOutcome(st.Account, StageOutcomes, st.Pipeline, st.Status, st.Started, st.Ended)
}

// recount counts a run that has ended, and no longer counts what it was before: an ended run can
// be continued.
func (tx *Tx) recount(run *Run) error {
	now := run.outcome()
	if now == run.counted {
		return nil
	}
	counts := map[outcome]int{}
	if run.counted != (outcome{}) {
		counts[run.counted]--
	}
	if now != (outcome{}) {
		counts[now]++
	}
	run.counted = now
	return tx.count(counts)
}

// count adds to the numbers of outcomes.
func (tx *Tx) count(counts map[outcome]int) error {
	rows := make([][]any, 0, len(counts))
	// Transactions that count the same outcomes must lock them in the same order.
	for _, o := range slices.SortedFunc(maps.Keys(counts), outcome.compare) {
		rows = append(rows, []any{o.account, o.kind, o.day, o.pipeline, o.status, o.bucket, counts[o]})
	}
	err := tx.insert(`INSERT INTO outcomes (account, kind, day, pipeline, status, bucket, number)`, rows,
		`ON CONFLICT (account, kind, day, pipeline, status, bucket) DO UPDATE SET number = outcomes.number + excluded.number`, nil)
	if err != nil {
		return fmt.Errorf("counting outcomes: %w", err)
	}
	return nil
}

func (o outcome) compare(p outcome) int {
	return cmp.Or(cmp.Compare(o.account, p.account), cmp.Compare(o.kind, p.kind), cmp.Compare(o.day, p.day),
		cmp.Compare(o.pipeline, p.pipeline), cmp.Compare(o.status, p.status), cmp.Compare(o.bucket, p.bucket))
}

// Day are the runs or stages that ended on a day in UTC.
type Day struct {
	Start time.Time
	// Statuses are the numbers by status.
	Statuses map[string]int
	// P50 and P95 are the durations that half and 95 % of them did not exceed, within 5 % and a millisecond. They are
	// zero if none has a duration.
	P50, P95 time.Duration

	durations map[int64]int // by bucket
}

// Days returns the outcomes of a kind by day, the first day first. Days without any are left out.
// An empty pipeline selects all.
func (s *Store) Days(ctx context.Context, account, kind, pipeline string, from, to time.Time) (days []Day, err error) {
	query, args := `SELECT day, status, bucket, SUM(number) FROM outcomes WHERE account = ? AND kind = ? AND day BETWEEN ? AND ?`, []any{account, kind, millis(from) / msPerDay, millis(to) / msPerDay}
	if pipeline != "" {
		query, args = query+` AND pipeline = ?`, append(args, pipeline)
	}
	err = each(ctx, s.db, s.rebind(query+` GROUP BY day, status, bucket HAVING SUM(number) > 0 ORDER BY day`), args, func(scan func(...any) error) error {
		var day, bucket int64
		var status string
		var n int
		if err := scan(&day, &status, &bucket, &n); err != nil {
			return err
		}
		start := time.UnixMilli(day * msPerDay).UTC()
		if len(days) == 0 || !days[len(days)-1].Start.Equal(start) {
			days = append(days, Day{Start: start, Statuses: map[string]int{}, durations: map[int64]int{}})
		}
		d := &days[len(days)-1]
		d.Statuses[status] += n
		if bucket != noDuration {
			d.durations[bucket] += n
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading outcomes: %w", err)
	}
	for i := range days {
		days[i].P50, days[i].P95 = days[i].quantile(0.5), days[i].quantile(0.95)
	}
	return days, nil
}

func (d *Day) quantile(q float64) time.Duration {
	all := 0
	for _, n := range d.durations {
		all += n
	}
	left := int(math.Ceil(q * float64(all)))
	for _, bucket := range slices.Sorted(maps.Keys(d.durations)) {
		if left -= d.durations[bucket]; left <= 0 {
			return duration(bucket)
		}
	}
	return 0
}
