package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// EndedStages lists the stages without a run that have ended. In the filter, After and Before bound
// the time of the end, Branch is the label "branch", and Text searches the id, the name, the
// pipeline, the values of labels, and the error. It fails with [ErrInvalid].
func (s *Service) EndedStages(ctx context.Context, account string, f api.RunFilter) (api.EndedPage, error) {
	q, err := storeFilter(account, &f)
	if err != nil {
		return api.EndedPage{}, err
	}
	rows, next, err := s.store.Ended(ctx, q)
	if err != nil {
		return api.EndedPage{}, err
	}
	page := api.EndedPage{Stages: make([]api.EndedStage, len(rows)), Next: nextPage(next)}
	for i := range rows {
		if err := json.Unmarshal(rows[i].Head, &page.Stages[i]); err != nil {
			return api.EndedPage{}, fmt.Errorf("decoding ended stage %s: %w", rows[i].ID, err)
		}
	}
	page.Lost, err = s.store.Lost(ctx, account)
	return page, err
}

// EndedStage returns a stage without a run that has ended, with its steps and their outputs, but
// without artifacts. Of several stages that had the id, it returns the last one. It fails with
// [ErrNotFound].
func (s *Service) EndedStage(ctx context.Context, account, id string) (api.Stage, error) {
	var st api.Stage
	row, err := s.store.EndedDetail(ctx, account, id)
	if errors.Is(err, store.ErrNotFound) {
		return st, fmt.Errorf("ended stage %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(row.Detail, &st); err != nil {
		return st, fmt.Errorf("decoding ended stage %s: %w", id, err)
	}
	return st, nil
}

// Outcomes returns the outcomes by day, the first day first, without days on which nothing ended. Of is "runs", which is
// the default, or "stages" without a run. An empty pipeline selects all. After and before are the first and the last day.
// They default to 29 days ago and today, in UTC. The durations are exact within 5 %.
// They cover the time of Config.Retention, also if MaxHistory has removed the runs or stages. It
// fails with [ErrInvalid].
func (s *Service) Outcomes(ctx context.Context, account, of, pipeline string, after, before time.Time) ([]api.Outcomes, error) {
	kind, known := map[string]string{"": store.RunOutcomes, "runs": store.RunOutcomes, "stages": store.StageOutcomes}[of]
	if !known {
		return nil, fmt.Errorf("%w: of is %q: use runs or stages", ErrInvalid, of)
	}
	if err := checkText("pipeline", pipeline, mostFilter); err != nil {
		return nil, err
	}
	if before.IsZero() {
		before = time.Now()
	}
	if after.IsZero() {
		after = before.AddDate(0, 0, -29)
	}
	days, err := s.store.Days(ctx, account, kind, pipeline, after, before)
	if err != nil {
		return nil, err
	}
	all := make([]api.Outcomes, len(days))
	for i, d := range days {
		all[i] = api.Outcomes{Day: d.Start.Format(time.DateOnly), Statuses: d.Statuses, P50: d.P50.Milliseconds(), P95: d.P95.Milliseconds()}
		for _, n := range d.Statuses {
			all[i].Ended += n
		}
	}
	return all, nil
}
