package manager

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

const (
	// maxPage is the largest number of stages in an answer, and its default.
	maxPage = 1_000
	// maxPageParts is the number of parts of stages after which a page ends.
	maxPageParts = 20_000
	// pageChunk is the number of stages that a listing looks at while it holds the
	// core's lock.
	pageChunk = 256
)

// stageFilter selects stages of an account.
type stageFilter struct {
	status   api.Status
	pipeline string
	labels   []string // NAME=VALUE
	after    uint64   // the order of the last stage of the previous page
	limit    int      // 0 is no limit
}

func (f *stageFilter) matches(n *run) bool {
	if f.status != "" && n.Status != f.status || f.pipeline != "" && n.Pipeline != f.pipeline {
		return false
	}
	return !slices.ContainsFunc(f.labels, func(l string) bool {
		name, value, _ := strings.Cut(l, "=")
		got, ok := n.Labels[name]
		return !ok || got != value
	})
}

// Stages returns the account's stages, the oldest first.
func (m *Manager) Stages(account string) []api.Stage {
	out, _ := m.stagePage(account, stageFilter{})
	return out
}

// stagePage returns the stages that a filter selects, the oldest first. More is the after
// of the next page, or 0 at the end.
func (m *Manager) stagePage(account string, f stageFilter) (out []api.Stage, more uint64) {
	out = []api.Stage{}
	places := m.core.queue.Places(account)
	parts, done := 0, false
	for !done {
		out, parts, done = m.core.listStages(out, parts, account, &f, places)
	}
	return out, f.after
}

// listStages appends the next stages to a page. It moves the filter behind them, or to 0
// at the end of the list.
func (c *core) listStages(out []api.Stage, parts int, account string, f *stageFilter, places map[string]queue.Place) ([]api.Stage, int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.inOrder[account]
	first, _ := slices.BinarySearchFunc(list, f.after+1, func(n *run, order uint64) int { return cmp.Compare(n.order, order) })
	for i, n := range list[first:] {
		if i == pageChunk {
			return out, parts, false
		}
		if c.stages[key{account, n.ID}] != n || !f.matches(n) {
			f.after = n.order
			continue
		}
		if f.limit > 0 && (len(out) == f.limit || len(out) > 0 && parts+n.stepCount() > maxPageParts) {
			return out, parts, true
		}
		s := n.view()
		if s.Status == api.Queued {
			s.Place, s.Reason = places[n.ID].Number, places[n.ID].Reason
		}
		out, parts, f.after = append(out, s), parts+n.stepCount(), n.order
	}
	f.after = 0
	return out, parts, true
}

// addToList adds a stage, which has the highest order, to the list of its account.
func (c *core) addToList(n *run) {
	list := append(c.inOrder[n.account], n)
	if forgotten := c.forgotten[n.account]; 2*forgotten > len(list) {
		list = slices.DeleteFunc(list, func(n *run) bool { return c.stages[key{n.account, n.ID}] != n })
		c.forgotten[n.account] = 0
	}
	c.inOrder[n.account] = list
}

// forgetStage removes a stage.
func (c *core) forgetStage(k key) {
	if n := c.stages[k]; n != nil {
		delete(c.stages, k)
		c.forgotten[k.account]++ // its lists still have it
		if n.end > 0 {
			c.endings[k.account].forgotten++
		}
	}
}

func (m *Manager) listStages(w http.ResponseWriter, r *http.Request) {
	f, err := parseStageFilter(r.URL.Query())
	if err != nil {
		writeError(w, err)
		return
	}
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	page := struct {
		Stages []api.Stage `json:"stages"`
		Next   string      `json:"next,omitempty"`
	}{}
	var more uint64
	if page.Stages, more = m.stagePage(account(r), f); more > 0 {
		page.Next = strconv.FormatUint(more, 10)
	}
	writeJSON(w, http.StatusOK, page)
}

func parseStageFilter(q url.Values) (stageFilter, error) {
	f := stageFilter{status: api.Status(q.Get("status")), pipeline: q.Get("pipeline"), labels: q["label"], limit: maxPage}
	if f.status != "" {
		if err := checkOneOf("status", string(f.status),
			string(api.Queued), string(api.Running), string(api.Success), string(api.Failure), string(api.Timeout), string(api.Aborted)); err != nil {
			return f, err
		}
	}
	if err := checkCount("label", len(f.labels), maxLabels); err != nil {
		return f, err
	}
	for _, l := range f.labels {
		if !strings.Contains(l, "=") {
			return f, fmt.Errorf("%w: label is %q; it must be NAME=VALUE", ErrInvalid, cut(l, maxPathName))
		}
	}
	var err error
	if text := q.Get("limit"); text != "" {
		if f.limit, err = strconv.Atoi(text); err != nil || f.limit < 1 || f.limit > maxPage {
			return f, fmt.Errorf("%w: limit is %q; it must be from 1 to %d", ErrInvalid, cut(text, maxPathName), maxPage)
		}
	}
	if text := q.Get("after"); text != "" {
		if f.after, err = strconv.ParseUint(text, 10, 64); err != nil || f.after == 0 || f.after == 1<<64-1 {
			return f, fmt.Errorf("%w: after is %q; it must be the value of next in an earlier answer", ErrInvalid, cut(text, maxPathName))
		}
	}
	return f, nil
}

// parameters returns a middleware that refuses query parameters other than accountId and
// those that are named. Only label may be repeated. Calls of delegates may have any,
// because foreign ones send more.
func parameters(names ...string) func(http.Handler) http.Handler {
	known := &shape{members: []member{{name: "accountId"}}}
	for _, name := range names {
		known.members = append(known.members, member{name: name})
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := known.checkQuery(r.URL.RawQuery); err != nil {
				writeError(w, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func (s *shape) checkQuery(text string) error {
	q, err := url.ParseQuery(text)
	if err != nil {
		return fmt.Errorf("%w: the query cannot be read: escape its special characters", ErrInvalid)
	}
	for name, values := range q {
		isKnown := slices.ContainsFunc(s.members, func(m member) bool { return m.name == name })
		shown := cut(name, maxPathName)
		switch similar := s.closest(name); {
		case isKnown && len(values) > 1 && name != "label":
			return fmt.Errorf("%w: the query has %q twice", ErrInvalid, shown)
		case isKnown:
		case similar != nil:
			return fmt.Errorf("%w: unknown query parameter %q; did you mean %q?", ErrInvalid, shown, similar.name)
		default:
			return fmt.Errorf("%w: unknown query parameter %q; this call has %s", ErrInvalid, shown, s.names())
		}
	}
	return nil
}
