package pipeline

import "github.com/delegate-io/dlite/manager/pipeline/internal/store"

// mostOwn bounds the parts that a process remembers as its own, in bytes.
const mostOwn = 16 << 20

// ownParts are the stages that this process has opened, and the steps that it has appended to stages of other processes.
// This process reports their ends at once. Every process sees the same events, and reports an end that the owner of the
// part has not reported within grace. So only the parts that were used last are kept, in case that the end of a part never comes: the
// end of another part is only reported later. The key of a stage has an empty step. Equal ids of two accounts only cost a look.
type ownParts struct{ recent[store.StepID, struct{}] }

// add adds steps of a stage; without steps, it adds the stage itself.
func (o *ownParts) add(stage string, steps ...store.Step) {
	if len(steps) == 0 {
		o.keep(store.StepID{Stage: stage})
	} else if o.has(stage, "") {
		return // with all its steps
	}
	for _, step := range steps {
		o.keep(store.StepID{Stage: stage, Step: step.ID})
	}
}

func (o *ownParts) keep(id store.StepID) {
	const entry = 256 // bytes besides the ids
	o.put(id, struct{}{}, entry+len(id.Stage)+len(id.Step))
}

// has reports whether this process reports a part of a stage, or with an empty step the stage.
func (o *ownParts) has(stage, step string) bool {
	if _, opened := o.get(store.StepID{Stage: stage}); opened {
		return true
	}
	_, appended := o.get(store.StepID{Stage: stage, Step: step})
	return appended
}
