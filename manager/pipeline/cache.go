package pipeline

import (
	"container/list"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// maxCached bounds the runs whose state a process keeps in memory.
const maxCached = 200

// liveRun is a run with its decoded state.
type liveRun struct {
	run     *store.Run
	machine *engine.Machine
	state   *engine.State
}

// runCache keeps the runs that were used last. Its zero value is ready. A run is used only by the
// transaction that has locked it in the database; the version tells whether another process has
// changed it.
type runCache struct {
	mu    sync.Mutex
	runs  map[runKey]*list.Element
	order list.List // of cachedRun, the one that was used last in front
}

type cachedRun struct {
	key  runKey
	live *liveRun
}

// load returns the state of a locked run, and removes it from the cache. The caller puts it back
// after the commit: a state whose transaction failed must not be taken for a later one with the
// same version.
func (c *runCache) load(tx *store.Tx, run *store.Run) (*liveRun, error) {
	key := runKey{run.Account, run.ID}
	if live := c.take(key, run.Version); live != nil {
		live.run = run
		return live, nil
	}
	nodes, err := tx.Nodes(run)
	if err != nil {
		return nil, err
	}
	definition, err := tx.Definition(run)
	if err != nil {
		return nil, err
	}
	return decode(run, definition, nodes)
}

// take removes a run from the cache and returns it if it has the version.
func (c *runCache) take(key runKey, version int64) *liveRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.runs[key]
	if e == nil {
		return nil
	}
	cached := c.remove(e)
	if cached.live.run.Version != version {
		return nil
	}
	return cached.live
}

func (c *runCache) put(key runKey, live *liveRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[runKey]*list.Element{}
	}
	if e := c.runs[key]; e != nil {
		c.remove(e)
	}
	c.runs[key] = c.order.PushFront(&cachedRun{key: key, live: live})
	if len(c.runs) > maxCached {
		c.remove(c.order.Back())
	}
}

func (c *runCache) remove(e *list.Element) *cachedRun {
	cached := c.order.Remove(e).(*cachedRun) //nolint:forcetypeassert // the list has nothing else
	delete(c.runs, cached.key)
	return cached
}

// document is the constant part of a run: its request.
type document struct {
	Run       engine.Run          `json:"run"`
	Source    definition.Source   `json:"source"`
	InputSets []definition.Source `json:"input_sets,omitempty"`
	Inputs    map[string]string   `json:"inputs,omitempty"`
	// Templates are the templates that the pipeline used, by reference and version.
	Templates map[string]definition.Source `json:"templates,omitempty"`
	// SkipOtherStages, see [Request].
	SkipOtherStages bool `json:"skip_other_stages,omitempty"`
	// StepTypes are the types of the settings at the start. A run keeps them.
	StepTypes []string `json:"step_types,omitempty"`
}

// decode builds the state of a run from its rows.
func decode(run *store.Run, definition []byte, nodes []store.Node) (*liveRun, error) {
	doc, machine, err := decodeDocument(run, definition)
	if err != nil {
		return nil, err
	}
	doc.Run.Number = run.Number
	state := &engine.State{Run: doc.Run, Nodes: make(map[string]*engine.Node, len(nodes))}
	for _, n := range nodes {
		node := &engine.Node{}
		if err := json.Unmarshal(n.Data, node); err != nil {
			return nil, broken("decoding node %s of run %s: %w", n.Path, run.ID, err)
		}
		state.Nodes[n.Path] = node
	}
	return &liveRun{run: run, machine: machine, state: state}, nil
}

func decodeDocument(run *store.Run, definition []byte) (*document, *engine.Machine, error) {
	var doc document
	if err := json.Unmarshal(definition, &doc); err != nil {
		return nil, nil, broken("decoding run %s: %w", run.ID, err)
	}
	p, problems := doc.read(nil, false)
	if p == nil {
		return nil, nil, broken("reading the pipeline of run %s again: %w", run.ID, problems)
	}
	machine, err := engine.New(p)
	if err != nil {
		return nil, nil, broken("planning run %s again: %w", run.ID, err)
	}
	return &doc, machine, nil
}

// read reads the pipeline. With templates, it also keeps those that the pipeline uses.
func (d *document) read(templates func(ref, version string) (Source, bool), partial bool) (*definition.Pipeline, Problems) {
	find := func(ref, version string) (Source, bool) {
		key := ref + "@" + version
		if t, ok := d.Templates[key]; ok || templates == nil {
			return t, ok
		}
		t, ok := templates(ref, version)
		if ok {
			if d.Templates == nil {
				d.Templates = map[string]definition.Source{}
			}
			d.Templates[key] = t
		}
		return t, ok
	}
	return definition.Read(d.Source, definition.Options{
		Templates: find, InputSets: d.InputSets, Inputs: d.Inputs, SkipOtherStages: d.SkipOtherStages, Partial: partial,
		StepTypes: d.StepTypes,
	})
}

// digest returns a short name for parts.
func digest(parts []string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // a hash accepts everything
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}
