package api

import "context"

// Limit bounds how many stages of a group run at a time.
type Limit struct {
	// Group is "account", "pipeline:NAME", or "label:NAME=VALUE".
	Group string `json:"group"`
	// Max is the largest number of running stages; 0 removes the limit. Used is their current number, which the manager
	// sets.
	Max  int `json:"max"`
	Used int `json:"used"`
}

// limitList is the answer of the list of limits.
type limitList struct {
	Limits []Limit `json:"limits"`
}

// Limits returns the limits of the account, ordered by group.
func (c *Client) Limits(ctx context.Context) ([]Limit, error) {
	list, err := fetch[limitList](ctx, c, get("api", "limits"))
	return list.Limits, err
}

// SetLimit sets a limit. A Max of 0 removes it. A lower limit stops no running stage.
func (c *Client) SetLimit(ctx context.Context, l Limit) error {
	l.Used = 0
	return c.run(ctx, put("api", "limits").with(l))
}
