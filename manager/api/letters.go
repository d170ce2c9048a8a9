package api

import (
	"context"
	"iter"
	"net/url"
)

// Letter is a dead letter: a message of a run that the pipeline service has tried too often.
type Letter struct {
	ID  string `json:"id"`
	Run string `json:"run_id"`
	// Topic is events or commands. Kind is the kind of the event or the command, and Node the path of a part of the run.
	Topic string `json:"topic"`
	Kind  string `json:"kind,omitempty"`
	Node  string `json:"node,omitempty"`
	// Tries counts the deliveries. Problem is the reason why the last one failed.
	Tries   int    `json:"tries"`
	Problem string `json:"problem"`
}

// LetterPage is a part of a list of dead letters, the oldest first. Next continues after it.
type LetterPage struct {
	Letters []Letter `json:"letters"`
	Next    string   `json:"next,omitempty"`
}

// Letters yields the dead letters of the account, the oldest first. It ends after an error.
func (c *Client) Letters(ctx context.Context) iter.Seq2[Letter, error] {
	return pages(ctx, c, "page", url.Values{}, func(p LetterPage) ([]Letter, string) { return p.Letters, p.Next }, "api", "letters")
}

// DeliverLetter lets the pipeline service try a dead letter again. If it fails too often, it becomes a dead letter again.
// The client does not repeat the call.
func (c *Client) DeliverLetter(ctx context.Context, id string) error {
	return c.run(ctx, post("api", "letters", id, "deliver").onlyOnce())
}

// DeleteLetter removes a dead letter.
func (c *Client) DeleteLetter(ctx context.Context, id string) error {
	return c.run(ctx, remove("api", "letters", id))
}
