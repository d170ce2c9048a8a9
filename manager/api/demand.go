package api

import (
	"context"
	"net/url"
	"strings"
)

// Demand counts the stages for delegates of one kind, for programs that decide how many of them run.
type Demand struct {
	// Value is the sum of Waiting and Running.
	Value int `json:"value"`
	// Waiting counts the stages that wait for such a delegate. Stages that wait for a limit, or for the end of a pause,
	// are not among them: more delegates would not run them.
	Waiting int `json:"waiting"`
	// Running counts the stages of such delegates that are neither lost nor draining.
	Running int `json:"running"`
}

// DemandQuery selects the stages of a [Demand]. The zero value selects all stages of the account.
type DemandQuery struct {
	// Tags are the tags of the delegates. They take the stages whose selectors are all among them. Nil means all stages.
	Tags []string
	// Infra selects stages for local, vm or kubernetes.
	Infra string
	// Pipeline and Labels select stages. All labels must match.
	Pipeline string
	Labels   map[string]string
}

// Demand returns how many stages wait and run for delegates of one kind.
func (c *Client) Demand(ctx context.Context, of DemandQuery) (Demand, error) {
	q := url.Values{}
	if of.Tags != nil {
		q.Set("tags", strings.Join(of.Tags, ","))
	}
	for name, value := range map[string]string{"infra": of.Infra, "pipeline": of.Pipeline} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range of.Labels {
		q.Add("label", name+"="+value)
	}
	return fetch[Demand](ctx, c, get("api", "demand").asking(q))
}
