package api

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// Pipeline is a pipeline that the manager keeps. Runs and triggers name it by its id.
type Pipeline struct {
	// ID is unique among the stored pipelines of the account: up to 64 letters, digits, _ and -.
	ID string `json:"id"`
	// YAML is the pipeline, and Name the name of its file, for messages. Lists do not have the YAML.
	YAML string `json:"yaml,omitempty"`
	Name string `json:"name,omitempty"`
	// InputSets are the YAML of input sets by their names. A request names those that it uses.
	InputSets map[string]string `json:"input_sets,omitempty"`
	// SkipOtherStages leaves out stages that are not CI stages. Otherwise they are errors.
	SkipOtherStages bool `json:"skip_other_stages,omitempty"`
	// Version counts the changes, from 1. A change with a version other than 0 is refused with status 409 if the pipeline
	// has another version.
	Version int64 `json:"version,omitempty"`
	// UpdatedAt is the time of the last change. The manager sets it.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	// Problems are the warnings about the pipeline, in the answer to a change.
	Problems []Problem `json:"problems,omitempty"`
}

// pipelinePage is a part of a list of pipelines. Next continues after it.
type pipelinePage struct {
	Pipelines []Pipeline `json:"pipelines"`
	Next      string     `json:"next,omitempty"`
}

// Pipelines yields the stored pipelines of the account without their YAML. It ends after an error.
func (c *Client) Pipelines(ctx context.Context) iter.Seq2[Pipeline, error] {
	return pages(ctx, c, "page", url.Values{}, func(p pipelinePage) ([]Pipeline, string) { return p.Pipelines, p.Next }, "api", "pipelines")
}

// Pipeline returns a stored pipeline.
func (c *Client) Pipeline(ctx context.Context, id string) (Pipeline, error) {
	return fetch[Pipeline](ctx, c, get("api", "pipelines", id))
}

// SetPipeline adds a stored pipeline, or replaces the one with its id. The answer has no YAML. A pipeline with errors is
// an [Error] with Problems. The client repeats the call only if Version is 0.
func (c *Client) SetPipeline(ctx context.Context, p Pipeline) (Pipeline, error) {
	what := put("api", "pipelines", p.ID).with(p)
	what.once = p.Version != 0
	return fetch[Pipeline](ctx, c, what)
}

// DeletePipeline removes a stored pipeline.
func (c *Client) DeletePipeline(ctx context.Context, id string) error {
	return c.run(ctx, remove("api", "pipelines", id))
}
