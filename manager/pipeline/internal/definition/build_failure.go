package definition

import "fmt"

func (r *reader) failureStrategies(n *Node, at *path) []*FailureStrategy {
	if n == nil || n.Kind != List {
		return nil
	}
	var result []*FailureStrategy
	for i, item := range n.Items {
		body, here := item.Get("onFailure"), at.item(i).at("onFailure")
		if body == nil || body.Kind != Map {
			continue
		}
		f := &FailureStrategy{Position: body.Position, Action: r.action(body.Get("action"), here.at("action"), 1)}
		if errors := body.Get("errors"); errors != nil {
			for _, kind := range errors.Items {
				f.Errors = append(f.Errors, kind.Text())
			}
			if errors.Kind == List && len(f.Errors) == 0 {
				r.warn(errors.Position, "missing-key", here.at("errors"), "errors is empty, so this strategy never applies", "write AllErrors, or name kinds of failure")
			}
		}
		result = append(result, f)
	}
	return result
}

// maxActions is how deeply actions may stand in each other (onRetryFailure, onTimeout).
const maxActions = 5

func (r *reader) action(n *Node, at *path, depth int) *Action {
	if n == nil || n.Kind != Map {
		return nil
	}
	a := &Action{Position: n.Position, Type: n.Get("type").Text()}
	if depth > maxActions {
		r.error(n.Position, "too-deep", at, fmt.Sprintf("more than %d actions stand in each other", maxActions), "")
		return a
	}
	spec, inside := n.Get("spec"), at.at("spec")
	switch a.Type {
	case "Retry":
		r.retry(a, n, spec, inside, depth)
	case "RetryStepGroup":
		if spec != nil {
			r.retry(a, n, spec, inside, depth)
		}
	case "ManualIntervention":
		r.intervention(a, n, spec, inside, depth)
	}
	return a
}

func (r *reader) retry(a *Action, n, spec *Node, at *path, depth int) {
	if spec == nil {
		r.error(n.Position, "missing-key", at, "the action Retry needs a spec", "write spec: {retryCount: 2, retryIntervals: [10s]}")
		return
	}
	a.RetryCount, a.Condition, a.FailAll = spec.Get("retryCount"), conditionOf(spec, "condition"), spec.Get("failAll")
	r.atLeast(a.RetryCount, 1, at.at("retryCount"))
	if count, ok := whole(a.RetryCount); ok && count > maxRetries {
		r.error(a.RetryCount.Position, "bad-value", at.at("retryCount"), fmt.Sprintf("%d is too large: the most is %d", count, maxRetries), "")
	}
	if intervals := spec.Get("retryIntervals"); intervals != nil && intervals.Kind == List {
		a.RetryIntervals = intervals.Items
	}
	for i, interval := range a.RetryIntervals {
		if interval.Dynamic() || interval.Kind != Scalar {
			continue
		}
		if _, err := ParseInterval(interval.Text()); err != nil {
			r.error(interval.Position, "bad-timeout", at.at("retryIntervals").item(i), "retryIntervals: "+err.Error(), "")
		}
	}
	a.OnRetryFailure = r.action(spec.Get("onRetryFailure").Get("action"), at.at("onRetryFailure").at("action"), depth+1)
	if inner := a.OnRetryFailure; inner != nil && (inner.Type == "Retry" || inner.Type == a.Type) {
		r.error(inner.Position, "bad-value", at.at("onRetryFailure"), "onRetryFailure cannot be "+inner.Type, "raise retryCount instead")
	}
}

// maxRetries is the most attempts after the first one.
const maxRetries = 100

func (r *reader) intervention(a *Action, n, spec *Node, at *path, depth int) {
	if spec == nil {
		r.error(n.Position, "missing-key", at, "the action ManualIntervention needs a spec",
			"write spec: {timeout: 1h, onTimeout: {action: {type: Abort}}}")
		return
	}
	a.Timeout = spec.Get("timeout")
	a.OnTimeout = r.action(spec.Get("onTimeout").Get("action"), at.at("onTimeout").at("action"), depth+1)
	if inner := a.OnTimeout; inner != nil && inner.Type == "ManualIntervention" {
		r.error(inner.Position, "bad-value", at.at("onTimeout"), "onTimeout cannot be ManualIntervention", "name an action that ends the wait")
	}
}
