package agent

import (
	"context"
	"errors"
	"fmt"
)

// Stop stops the step with that key and returns when no process of it runs. An unknown step never
// starts. A detached step that is ready runs until the stage is destroyed. A foreign agent cannot
// stop a step, which is an error.
func (c *Client) Stop(ctx context.Context, key string) error {
	own, err := c.isOwn(ctx)
	if err == nil && !own {
		err = errors.New("this agent cannot stop a step: destroy its machine instead")
	}
	if err == nil {
		err = c.post(ctx, "/stop_step", stopRequest{ID: key}, &struct{}{})
	}
	if err != nil {
		return fmt.Errorf("agent's stop of step %s: %w", key, err)
	}
	return nil
}
