package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// maxPage is the largest size of a page.
const maxPage = 50

// Runs lists runs without their nodes. It fails with [ErrInvalid].
func (s *Service) Runs(ctx context.Context, account string, f api.RunFilter) (api.RunPage, error) {
	q, err := storeFilter(account, &f)
	if err != nil {
		return api.RunPage{}, err
	}
	rows, next, err := s.store.Runs(ctx, q)
	if err != nil {
		return api.RunPage{}, err
	}
	page := api.RunPage{Runs: []api.Run{}, Next: nextPage(next)}
	for i := range rows {
		page.Runs = append(page.Runs, summary(&rows[i]))
	}
	return page, nil
}

// storeFilter returns the store's form of a filter.
func storeFilter(account string, f *api.RunFilter) (store.Filter, error) {
	q := store.Filter{
		Account: account, Pipeline: f.Pipeline, Status: f.Status, Branch: f.Branch, Text: f.Text, After: f.After, Before: f.Before, Limit: maxPage,
	}
	if f.Limit > 0 && f.Limit < maxPage {
		q.Limit = f.Limit
	}
	if len(f.Labels) > mostLabels {
		return q, fmt.Errorf("%w: the filter has %d labels; it may have %d", ErrInvalid, len(f.Labels), mostLabels)
	}
	for name, value := range f.Labels {
		q.Marks = append(q.Marks, store.Mark{Kind: "label", Name: name, Value: value})
	}
	if f.Delegate != "" {
		q.Marks = append(q.Marks, store.Mark{Kind: "delegate", Value: f.Delegate})
	}
	for name, text := range map[string]string{"pipeline": f.Pipeline, "status": f.Status, "branch": f.Branch, "delegate": f.Delegate, "text": f.Text} {
		if err := checkText(name, text, mostFilter); err != nil {
			return q, err
		}
	}
	for name, value := range f.Labels {
		if err := errors.Join(checkText("label", name, mostFilter), checkText("label", value, mostFilter)); err != nil {
			return q, err
		}
	}
	if f.Text != "" && !strings.ContainsFunc(f.Text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
		return q, fmt.Errorf("%w: text has no letter and no digit: it is searched by words", ErrInvalid)
	}
	if f.Page != "" {
		ms, id, ok := strings.Cut(f.Page, "-")
		n, err := strconv.ParseInt(ms, 10, 64)
		if !ok || err != nil || id == "" || checkText("page", id, mostFilter) != nil {
			return q, fmt.Errorf("%w: page is not a token of this list", ErrInvalid)
		}
		q.Before, q.BeforeID = time.UnixMilli(n), id
	}
	return q, nil
}

// mostFilter bounds each text of a filter, in bytes.
const mostFilter = 512

// nextPage returns the token of the next page.
func nextPage(next *store.Key) string {
	if next == nil {
		return ""
	}
	return strconv.FormatInt(next.Time.UnixMilli(), 10) + "-" + next.ID
}
