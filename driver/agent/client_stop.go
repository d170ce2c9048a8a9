package agent

import (
	"context"
	"errors"
	"fmt"
)

// Stop ends the step with that key, and returns when nothing of it runs any more. A
// step that has not begun will not begin; a detached one that can be used goes on until
// the stage is destroyed. Another agent than ours cannot do that,
// which is an error.
func (c *Client) Stop(ctx context.Context, key string) error {
	ours, err := c.ours(ctx)
	if err == nil && !ours {
		err = errors.New("the agent cannot stop a step, it ends with its machine")
	}
	if err == nil {
		err = c.post(ctx, "/stop_step", StopRequest{ID: key}, &struct{}{})
	}
	if err != nil {
		return fmt.Errorf("agent's stop of step %s: %w", key, err)
	}
	return nil
}
