package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/internal/token"
)

// maxTokenLifetime is the longest lifetime of a token of [HTTP.Token].
const maxTokenLifetime = 24 * time.Hour

// Token returns a token for another process, such as an agent that reports the end of a step
// (stage.StepStatus). It permits the calls of this delegate, and is valid for the lifetime, which
// must be at most 24 hours. Zero means 20 minutes. With [WithToken] it returns that token.
func (h *HTTP) Token(lifetime time.Duration) (string, error) {
	switch {
	case lifetime < 0 || lifetime > maxTokenLifetime:
		return "", fmt.Errorf("the lifetime %s of a token is not between 0 and %s", lifetime, maxTokenLifetime)
	case lifetime == 0:
		lifetime = token.DefaultTTL
	}
	c := h.creds
	if c.secret.IsZero() {
		b := c.current.Load()
		if b == nil {
			return "", errors.New("the client has neither a secret nor a token")
		}
		return b.token, nil
	}
	return c.secret.Issue(c.account, c.now().Round(0), lifetime)
}
