package engine

import (
	"errors"
	"fmt"

	"github.com/delegate-io/dlite/manager/pipeline/internal/definition"
)

// Bounds of a run.
const (
	// maxDepth bounds nested groups.
	maxDepth = 32
	// maxIterations bounds the children of one strategy.
	maxIterations = 256
	// maxName bounds the name of a person, in bytes.
	maxName = 256
	// maxPast, maxEvaluated and maxFailures bound the lists of a node.
	maxPast      = 20
	maxEvaluated = 100
	maxFailures  = 100
	// maxAnnounced bounds the steps that are announced when a stage opens.
	maxAnnounced = 1000
	// maxText bounds a value or a reason that a node keeps, in bytes, and maxRecord all evaluated
	// expressions of a node.
	maxText   = 2048
	maxRecord = 65536
	// maxOutput, maxOutputBytes and maxOutputs bound the outputs of a step: each and all of them,
	// in bytes, and their number.
	maxOutput      = 131072
	maxOutputBytes = 4 << 20
	maxOutputs     = 1000
	// maxRetries bounds the retries of a node by failure strategies.
	maxRetries = 1000
)

// Machine runs one pipeline. It is immutable: any number of goroutines may use it, each with its
// own State.
type Machine struct {
	pipeline *definition.Pipeline
	root     *element
	// elements are the parts of the definition by their path without postfixes.
	elements map[string]*element
	// dependents are the stages that depend on a stage, for a graph.
	dependents map[*element][]*element
}

// element is a part of the definition: the pipeline, a stage, a group or a step.
type element struct {
	kind   Kind
	path   string // in the definition
	id     string
	name   string
	order  int // among the elements of the parent
	parent *element
	stage  *definition.Stage
	group  *definition.Group
	step   *definition.Step
	// when, strategy and failureStrategies belong to the stage, the group or the step.
	when              *definition.When
	strategy          *definition.Strategy
	failureStrategies []*definition.FailureStrategy
	// unused are the secret variables of the pipeline that the texts of a stage do not name.
	unused map[string]bool
	// items are the elements of a container. Those of one item run at the same time.
	items [][]*element
	// byID are the elements of a container by identifier.
	byID map[string]*element
	// depends are the elements that a stage of a graph depends on.
	depends []*element
}

// New returns the machine of a pipeline that was read without errors.
func New(pipeline *definition.Pipeline) (*Machine, error) {
	if pipeline == nil {
		return nil, errors.New("no pipeline")
	}
	m := &Machine{
		pipeline: pipeline, elements: map[string]*element{}, dependents: map[*element][]*element{},
		root: &element{kind: PipelineNode, path: rootPath, id: pipeline.Identifier, name: pipeline.Name, byID: map[string]*element{}},
	}
	m.elements[rootPath] = m.root
	for i := range pipeline.Stages {
		if err := m.addStages(&pipeline.Stages[i]); err != nil {
			return nil, err
		}
	}
	if len(m.root.items) == 0 {
		return nil, fmt.Errorf("%s: the pipeline has no stages", at(pipeline.Position))
	}
	if pipeline.Graph {
		if err := m.link(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Machine) addStages(item *definition.StageItem) error {
	stages := item.Parallel
	if item.Stage != nil {
		stages = []*definition.Stage{item.Stage}
	}
	var elements []*element
	for _, stage := range stages {
		e := &element{
			kind: StageNode, id: stage.Identifier, name: stage.Name, stage: stage,
			when: stage.When, strategy: stage.Strategy, failureStrategies: stage.FailureStrategies,
			unused: unusedSecrets(m.pipeline.Variables, stage.Spec),
		}
		if err := m.add(m.root, e, stage.Position); err != nil {
			return err
		}
		for i := range stage.Steps {
			if err := m.addSteps(e, &stage.Steps[i], 0); err != nil {
				return err
			}
		}
		elements = append(elements, e)
	}
	if len(elements) > 0 {
		m.root.items = append(m.root.items, elements)
	}
	return nil
}

// addSteps adds one item to a stage or a group.
func (m *Machine) addSteps(parent *element, item *definition.StepItem, depth int) error {
	elements, err := m.addItem(parent, item, depth)
	if err == nil && len(elements) > 0 {
		parent.items = append(parent.items, elements)
	}
	return err
}

func (m *Machine) addItem(parent *element, item *definition.StepItem, depth int) ([]*element, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s: groups are nested deeper than %d", at(item.Position), maxDepth)
	}
	switch {
	case item.Step != nil:
		step := item.Step
		e := &element{
			kind: StepNode, id: step.Identifier, name: step.Name, step: step,
			when: step.When, strategy: step.Strategy, failureStrategies: step.FailureStrategies,
		}
		return []*element{e}, m.add(parent, e, step.Position)
	case item.Group != nil:
		group := item.Group
		e := &element{
			kind: GroupNode, id: group.Identifier, name: group.Name, group: group,
			when: group.When, strategy: group.Strategy, failureStrategies: group.FailureStrategies,
		}
		if err := m.add(parent, e, group.Position); err != nil {
			return nil, err
		}
		for i := range group.Steps {
			if err := m.addSteps(e, &group.Steps[i], depth+1); err != nil {
				return nil, err
			}
		}
		return []*element{e}, nil
	}
	var all []*element
	for i := range item.Parallel {
		elements, err := m.addItem(parent, &item.Parallel[i], depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, elements...)
	}
	return all, nil
}

// add enters e below its parent.
func (m *Machine) add(parent, e *element, position definition.Position) error {
	if e.id == "" {
		return fmt.Errorf("%s: the %s has no identifier", at(position), e.kind)
	}
	if parent.byID[e.id] != nil {
		return fmt.Errorf("%s: identifier %q is used twice in %s", at(position), e.id, parent.path)
	}
	e.parent, e.path, e.order = parent, childPath(parent.kind, parent.path, e.id), len(parent.byID)
	if e.kind != StepNode {
		e.byID = map[string]*element{}
	}
	parent.byID[e.id] = e
	m.elements[e.path] = e
	return nil
}

// childPath returns the path of a child of a container.
func childPath(kind Kind, path, id string) string {
	switch kind {
	case PipelineNode:
		return path + ".stages." + id
	case StageNode:
		return path + ".spec.execution.steps." + id
	}
	return path + ".steps." + id
}

// link connects the stages of a graph and checks that it has no cycle.
func (m *Machine) link() error {
	for _, e := range m.root.all() {
		for _, id := range e.stage.DependsOn {
			on := m.root.byID[id]
			if on == nil {
				return fmt.Errorf("%s: dependsOn: there is no stage %q", at(e.stage.Position), id)
			}
			e.depends = append(e.depends, on)
			m.dependents[on] = append(m.dependents[on], e)
		}
	}
	left := map[*element]int{}
	var free []*element
	for _, e := range m.root.all() {
		if left[e] = len(e.depends); left[e] == 0 {
			free = append(free, e)
		}
	}
	seen := 0
	for ; len(free) > 0; seen++ {
		e := free[0]
		free = free[1:]
		for _, next := range m.dependents[e] {
			if left[next]--; left[next] == 0 {
				free = append(free, next)
			}
		}
	}
	if seen < len(m.root.byID) {
		return fmt.Errorf("%s: dependsOn: the stages depend on each other in a cycle", at(m.pipeline.Position))
	}
	return nil
}

// all returns the elements of a container in their order.
func (e *element) all() []*element {
	var all []*element
	for _, item := range e.items {
		all = append(all, item...)
	}
	return all
}

// typeName is the type of the step or the stage.
func (e *element) typeName() string {
	switch e.kind {
	case StageNode:
		return e.stage.Type
	case StepNode:
		return e.step.Type
	}
	return ""
}

// at writes a position as file:line:column.
func at(p definition.Position) string {
	file := p.File
	if file == "" {
		file = "pipeline"
	}
	if p.Line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d:%d", file, p.Line, p.Column)
}
