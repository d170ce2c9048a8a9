package pipeline

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Filter selects runs. Zero fields select all.
type Filter struct {
	Pipeline, Status, Branch string
	// Labels are names and values that the run must have.
	Labels map[string]string
	// Text is a part of the pipeline's identifier or name, the branch or the user, without regard
	// to case.
	Text string
	// After and Before bound the time of creation.
	After, Before time.Time
	// Limit is the size of a page, at most and by default 50.
	Limit int
	// Page is the token of the next page from the previous one.
	Page string
}

// Page is a part of a list of runs, the newest first.
type Page struct {
	Runs []Run `json:"runs"`
	// Next is the token of the next page, or empty.
	Next string `json:"next,omitempty"`
}

// maxPage is the largest size of a page.
const maxPage = 50

// Runs lists runs without their nodes.
func (s *Service) Runs(ctx context.Context, account string, f Filter) (Page, error) {
	q := store.Filter{
		Account: account, Pipeline: f.Pipeline, Status: f.Status, Branch: f.Branch, Text: f.Text, After: f.After, Before: f.Before,
	}
	limit := maxPage
	if f.Limit > 0 && f.Limit < maxPage {
		limit = f.Limit
	}
	q.Limit = limit + 1
	for name, value := range f.Labels {
		q.Marks = append(q.Marks, store.Mark{Kind: "label", Name: name, Value: value})
	}
	if f.Page != "" {
		ms, id, ok := strings.Cut(f.Page, "-")
		n, err := strconv.ParseInt(ms, 10, 64)
		if !ok || err != nil {
			return Page{}, fmt.Errorf("%w: page is not a token of a list of runs", ErrInvalid)
		}
		q.Before, q.BeforeID = time.UnixMilli(n), id
	}
	rows, err := s.store.Runs(ctx, q)
	if err != nil {
		return Page{}, err
	}
	page := Page{Runs: []Run{}}
	for i := range rows {
		if i == limit {
			last := rows[i-1]
			page.Next = strconv.FormatInt(last.Created.UnixMilli(), 10) + "-" + last.ID
			break
		}
		page.Runs = append(page.Runs, summary(&rows[i]))
	}
	return page, nil
}
