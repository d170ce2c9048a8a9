package engine

import (
	"fmt"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// timeout renders a field that holds a time-out. Nil is 0.
func (t *turn) timeout(n *Node, field *definition.Node) (time.Duration, error) {
	return t.duration(n, "timeout", field, definition.ParseTimeout)
}

// interval renders a field that holds a wait.
func (t *turn) interval(n *Node, field *definition.Node) (time.Duration, error) {
	return t.duration(n, "failureStrategies.retryIntervals", field, definition.ParseInterval)
}

func (t *turn) duration(
	n *Node, path string, field *definition.Node, parse func(string) (time.Duration, error),
) (time.Duration, error) {
	if field == nil || field.Value == nil {
		return 0, nil
	}
	value, err := t.fieldText(n, path, field)
	if err != nil {
		return 0, err
	}
	limit, err := parse(value)
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", at(field.Position), path, err)
	}
	return limit, nil
}
