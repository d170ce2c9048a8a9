package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// candidate is a delegate with the reason why it cannot take a stage, which is empty if it can.
type candidate struct {
	Delegate string `json:"delegate"`
	Obstacle string `json:"obstacle,omitempty"`
}

// delegates returns the delegates of the manager at --url, or none without --url.
func (c *explainCommand) delegates(ctx context.Context) ([]api.Delegate, error) {
	if c.url == "" {
		if c.account != "" {
			return nil, errors.New("--account needs --url, the address of the manager")
		}
		return nil, nil
	}
	token := os.Getenv("API_TOKEN")
	if c.account == "" || token == "" {
		return nil, errors.New("--url needs --account, and a token of the account in the variable API_TOKEN")
	}
	client, err := api.New(api.Config{URL: c.url, Account: c.account, Token: token, RetryFor: -1})
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	list, err := client.Delegates(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the manager for its delegates: %w", err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the account %s has no delegate at %s: start one first", c.account, c.url)
	}
	return list, nil
}

// candidatesOf returns the delegates for each stage that opens, by the path of the stage. Lost delegates are left out.
func candidatesOf(e pipeline.Explanation, delegates []api.Delegate) map[string][]candidate {
	all := map[string][]candidate{}
	for path, plan := range e.Plans {
		if plan.Stage == nil || len(delegates) == 0 {
			continue
		}
		all[path] = []candidate{}
		for i := range delegates {
			if d := &delegates[i]; d.State != "LOST" {
				all[path] = append(all[path], candidate{cmp.Or(d.Name, d.ID), manager.Obstacle(plan.Stage, d)})
			}
		}
	}
	return all
}

// listed returns the lines about the candidates of a stage: those that can take it, or else why none can.
func listed(candidates []candidate) []string {
	if candidates == nil {
		return nil
	}
	var able, unable []string
	for _, c := range candidates {
		if c.Obstacle == "" {
			able = append(able, c.Delegate)
		} else {
			unable = append(unable, c.Delegate+" cannot: "+c.Obstacle)
		}
	}
	switch {
	case len(able) > 0:
		return []string{"taken by: " + strings.Join(able, ", ")}
	case len(unable) > 0:
		return append([]string{"taken by: no delegate now"}, unable...)
	}
	return []string{"taken by: no delegate now: none is connected"}
}
