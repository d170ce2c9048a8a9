package pipeline

import (
	"encoding/json"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// Bounds of the memory of a process, in bytes of JSON and YAML. The decoded form takes a few times as much.
const (
	mostStates    = 32 << 20 // nodes of active runs
	mostConstants = 32 << 20 // requests of runs
	mostPlans     = 16 << 20 // pipelines, each once for all runs with the same text
	// leastSize is counted for every value in addition.
	leastSize = 1024
)

// liveRun is a run with its decoded state.
type liveRun struct {
	run     *store.Run
	machine *engine.Machine
	state   *engine.State

	sizes map[string]int // of the nodes by path, as JSON
	size  int            // their sum

	due *wantedStatus // to queue with the run, or nil
}

// caches keep what was used last. A state is used only by the transaction that has locked its run in the database. The
// other values are constant.
type caches struct {
	states    recent[runKey, *liveRun]
	constants recent[runKey, *constant]
	plans     recent[string, *plan]
}

func (c *caches) setBounds() {
	c.states.most, c.constants.most, c.plans.most = mostStates, mostConstants, mostPlans
}

// constant is the part of a run that never changes.
type constant struct {
	number int64 // of the run: an expired run may have had the same id
	doc    *document
	plan   string // names its plan
}

// plan is a pipeline that was read.
type plan struct {
	pipeline *definition.Pipeline
	machine  *engine.Machine
}

// load returns the state of a locked run, and removes it from the cache. The caller keeps it after the commit: a state
// whose transaction failed must not be taken for a later one with the same version.
func (c *caches) load(tx *store.Tx, run *store.Run) (*liveRun, error) {
	live, ok := c.states.take(runKey{run.Account, run.ID})
	if !ok || live.run.Number != run.Number || live.run.Version > run.Version {
		fixed, err := c.constant(run, func() ([]byte, error) { return tx.Definition(run) })
		if err != nil {
			return nil, err
		}
		nodes, err := tx.Nodes(run, 0)
		if err != nil {
			return nil, err
		}
		return c.decode(run, fixed, nodes)
	}
	if live.run.Version < run.Version { // another process has changed it
		nodes, err := tx.Nodes(run, live.run.Version)
		if err != nil {
			return nil, err
		}
		if err := live.add(nodes); err != nil {
			return nil, err
		}
	}
	live.run = run
	return live, nil
}

// keep puts the state of a run into the cache after its transaction.
func (c *caches) keep(live *liveRun) {
	c.states.put(runKey{live.run.Account, live.run.ID}, live, live.size+leastSize)
}

// constant returns the constant part of a run. The function reads its definition.
func (c *caches) constant(run *store.Run, definition func() ([]byte, error)) (*constant, error) {
	key := runKey{run.Account, run.ID}
	if fixed, ok := c.constants.get(key); ok && fixed.number == run.Number {
		return fixed, nil
	}
	text, err := definition()
	if err != nil {
		return nil, err
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, broken("decoding run %s: %w", run.ID, err)
	}
	doc.Run.Number = run.Number
	name, err := doc.name()
	if err != nil {
		return nil, err
	}
	fixed := &constant{number: run.Number, doc: &doc, plan: name}
	c.constants.put(key, fixed, len(text)+leastSize)
	return fixed, nil
}

// plan returns the plan of a document with a name. Templates are for a new run; an old one has those that it used.
func (c *caches) plan(name string, doc *document, templates func(ref, version string) (Source, bool)) (*plan, error) {
	if p, ok := c.plans.get(name); ok {
		return p, nil
	}
	before := len(doc.Templates)
	pipeline, problems := doc.read(templates, false)
	if pipeline == nil {
		return nil, problems
	}
	machine, err := engine.New(pipeline)
	if err != nil {
		return nil, err
	}
	p := &plan{pipeline, machine}
	if len(doc.Templates) == before { // otherwise the name does not cover all that the plan is made from
		c.plans.put(name, p, doc.size()+leastSize)
	}
	return p, nil
}

// decode builds the state of a run from its rows.
func (c *caches) decode(run *store.Run, fixed *constant, nodes []store.Node) (*liveRun, error) {
	p, err := c.plan(fixed.plan, fixed.doc, nil)
	if err != nil {
		return nil, broken("reading the pipeline of run %s again: %w", run.ID, err)
	}
	state := &engine.State{Run: fixed.doc.Run, Nodes: make(map[string]*engine.Node, len(nodes))}
	live := &liveRun{run: run, machine: p.machine, state: state}
	return live, live.add(nodes)
}

// add adds nodes to the state, or replaces them.
func (l *liveRun) add(nodes []store.Node) error {
	for _, n := range nodes {
		node, err := decodeNode(l.run.ID, n)
		if err != nil {
			return err
		}
		l.state.Put(node)
		l.count(n)
	}
	return nil
}

// decodeNode returns a node of a run from its row.
func decodeNode(run string, row store.Node) (*engine.Node, error) {
	node := &engine.Node{}
	if err := json.Unmarshal(row.Data, node); err != nil {
		return nil, broken("decoding node %s of run %s: %w", row.Path, run, err)
	}
	return node, nil
}

// count notes the size of a node.
func (l *liveRun) count(n store.Node) {
	if l.sizes == nil {
		l.sizes = map[string]int{}
	}
	l.size += len(n.Data) - l.sizes[n.Path]
	l.sizes[n.Path] = len(n.Data)
}
