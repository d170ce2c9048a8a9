package manager

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/delegate-io/dlite/manager/api"
)

// maxEnded is the largest number of stages in an answer of [Manager.EndedStages], and its default.
const maxEnded = 1_000

// EndedStages returns stages that ended after a number of the list, at most limit. A limit of 0 is
// 1,000, which is also the maximum. A program that keeps ended stages for longer than
// [Config.Retention] calls it for each event of a stage, and again until Next equals Last. It
// fails with [ErrUnavailable] if the store does not answer.
func (m *Manager) EndedStages(ctx context.Context, account string, after uint64, limit int) (api.NumberedStages, error) {
	if limit <= 0 || limit > maxEnded {
		limit = maxEnded
	}
	out := m.core.endedAfter(account, after, limit)
	if out.Last < after { // another manager has told of stages that this one has not read yet
		if err := m.journal.Sync(ctx); err != nil {
			return api.NumberedStages{}, err
		}
		out = m.core.endedAfter(account, after, limit)
	}
	for i := range out.Stages {
		s := &out.Stages[i]
		s.Delegate = cmp.Or(m.core.queue.Label(account, s.Stage.DelegateID), s.Stage.DelegateID)
	}
	return out, nil
}

func (c *core) endedAfter(account string, after uint64, limit int) api.NumberedStages {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.endings[account]
	if e == nil {
		e = &endings{}
	}
	out := api.NumberedStages{Epoch: c.set.Epoch, Stages: []api.NumberedStage{}, Next: after, Last: e.last}
	first, _ := slices.BinarySearchFunc(e.list, after+1, func(n *run, end uint64) int { return cmp.Compare(n.end, end) })
	parts := 0
	for _, n := range e.list[first:] {
		if c.stages[key{account, n.ID}] != n {
			continue
		}
		if len(out.Stages) == limit || parts > maxPageParts {
			out.Missed = out.Next - after - uint64(len(out.Stages))
			return out
		}
		out.Stages = append(out.Stages, api.NumberedStage{Stage: n.view()})
		out.Next, parts = n.end, parts+n.stepCount()
	}
	if out.Last > after { // the rest is forgotten
		out.Next = out.Last
	}
	out.Missed = out.Next - after - uint64(len(out.Stages))
	return out
}

// endings are the ended stages of an account by the order of their ends.
type endings struct {
	last      uint64 // the number of the last one
	list      []*run // some are forgotten
	forgotten int    // how many of them
}

// addEnding gives a stage that has ended its number.
func (c *core) addEnding(n *run) {
	e := c.endings[n.account]
	if e == nil {
		e = &endings{}
		c.endings[n.account] = e
	}
	if 2*e.forgotten > len(e.list) {
		e.list = slices.DeleteFunc(e.list, func(n *run) bool { return c.stages[key{n.account, n.ID}] != n })
		e.forgotten = 0
	}
	e.last++
	n.end = e.last
	e.list = append(e.list, n)
}

// loadEndings rebuilds the lists of ended stages. Stages of a state that an older version saved
// have no numbers yet.
func loadEndings(last map[string]uint64, inOrder map[string][]*run) map[string]*endings {
	all := map[string]*endings{}
	for account, n := range last {
		all[account] = &endings{last: n}
	}
	for account, stages := range inOrder {
		e := all[account]
		if e == nil {
			e = &endings{}
		}
		for _, n := range stages {
			if n.Status.Ended() {
				e.list = append(e.list, n)
			}
		}
		if len(e.list) > 0 {
			all[account] = e
		}
		slices.SortFunc(e.list, func(a, b *run) int {
			return cmp.Or(cmp.Compare(a.end, b.end), a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.order, b.order))
		})
		for _, n := range e.list {
			if n.end == 0 {
				e.last++
				n.end = e.last
			}
		}
	}
	return all
}

func (m *Manager) listEnded(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var after uint64
	var limit int
	var err error
	if text := q.Get("after"); text != "" {
		if after, err = strconv.ParseUint(text, 10, 64); err != nil || after == 1<<64-1 {
			writeError(w, fmt.Errorf("%w: after is %q; it must be the value of next in an earlier answer", ErrInvalid, cut(text, maxPathName)))
			return
		}
	}
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxEnded {
			writeError(w, fmt.Errorf("%w: limit is %q; it must be from 1 to %d", ErrInvalid, cut(text, maxPathName), maxEnded))
			return
		}
	}
	m.setLastEvent(w, r)
	page, err := m.EndedStages(r.Context(), account(r), after, limit)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, page)
}
