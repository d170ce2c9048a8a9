package logger

import (
	"cmp"
	"context"
)

type labelsKey struct{}

// ContextWithLabels returns a context that carries labels for loggers that are
// made later, see [LabelsFromContext]. Empty labels keep the value that ctx
// carries. The poller labels the delegate in this way.
func ContextWithLabels(ctx context.Context, l Labels) context.Context {
	return context.WithValue(ctx, labelsKey{}, l.or(LabelsFromContext(ctx)))
}

// LabelsFromContext returns the labels that ctx carries.
func LabelsFromContext(ctx context.Context) Labels {
	l, _ := ctx.Value(labelsKey{}).(Labels)
	return l
}

// or returns l with the values of other in place of empty ones.
func (l Labels) or(other Labels) Labels {
	return Labels{
		Account: cmp.Or(l.Account, other.Account), Delegate: cmp.Or(l.Delegate, other.Delegate),
		Task: cmp.Or(l.Task, other.Task), TaskType: cmp.Or(l.TaskType, other.TaskType),
		Transaction: cmp.Or(l.Transaction, other.Transaction), Stage: cmp.Or(l.Stage, other.Stage), Step: cmp.Or(l.Step, other.Step),
	}
}
