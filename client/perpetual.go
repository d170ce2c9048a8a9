package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/internal/perpetual"
)

// ReconcilePerpetual renews the leases of the delegate's perpetual tasks, reports their
// runs and returns the changes. It is an extension of our manager, the same for both
// protocols; package poller calls it for poller.WithPerpetual. The manager may hold the
// call for up to wait, rounded up to whole seconds. It makes one attempt, because the next
// call follows soon.
func (h *HTTP) ReconcilePerpetual(ctx context.Context, delegateID string, r *perpetual.Report, wait time.Duration) (*perpetual.Answer, error) {
	d, err := segment("delegate", delegateID)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	query := h.query
	if seconds := int64((wait + time.Second - 1) / time.Second); seconds > 0 {
		query += "&" + waitParam + "=" + strconv.FormatInt(seconds, 10)
	}
	c := h.newCall(http.MethodPost, perpetual.PathPrefix+d+perpetual.PathSuffix, query, body)
	c.attempts, c.wait, c.grantsTask = 1, max(0, wait), true
	var a *perpetual.Answer
	c.read = func(_ http.Header, body []byte) error {
		a = new(perpetual.Answer)
		if body == nil {
			return nil
		}
		return json.Unmarshal(body, a)
	}
	if err := h.do(ctx, c); err != nil {
		return nil, err
	}
	return a, nil
}
