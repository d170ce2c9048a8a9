package definition

import "sync"

// shape is the form that the value of a key has.
type shape int

const (
	anyShape    shape = iota
	textShape         // a scalar
	boolShape         // true, false or an expression
	numberShape       // a whole number or an expression
	timeShape         // a time-out such as 1h 30m
	listShape         // a list of scalars, or an expression
	mapShape          // a map of scalars, or an expression
	objectShape       // a map with the keys of an object
	itemsShape        // a list of maps with the keys of an object
	specShape         // a map whose keys depend on the key type beside it
)

// key is a known key of an object. The reader, its suggestions and the JSON Schema all use this
// one table.
type key struct {
	name  string
	shape shape
	// of names the object of objectShape and itemsShape, or the variants of specShape.
	of string
	// need makes an absent key an error.
	need bool
	// fixed refuses expressions: the value decides the structure of the run.
	fixed bool
	// ignored and refused give the reason for a warning and for an error.
	ignored, refused string
	// harmless are values of an ignored key that change nothing, and need no warning.
	harmless []string
	// spare makes a runtime input without a value absent.
	spare bool
	// words are the permitted values; the reader takes them in any case and writes them as
	// they are here.
	words []string
	// about describes the key in the JSON Schema.
	about string
}

// object is a map with known keys.
type object struct {
	name string
	keys []key
	// one lists keys of which exactly one must be present.
	one []string
	// inner names the key below which a misplaced key is looked for, for the hint.
	inner string
	index map[string]int
}

func (o *object) key(name string) *key {
	if i, ok := o.index[name]; ok {
		return &o.keys[i]
	}
	return nil
}

func (o *object) names() []string {
	names := make([]string, 0, len(o.keys))
	for _, k := range o.keys {
		if k.refused == "" && k.ignored == "" {
			names = append(names, k.name)
		}
	}
	return names
}

// table holds all objects by name, and the objects of each type by the name of the variants.
type table struct {
	objects  map[string]*object
	variants map[string]map[string]string
}

// known returns the table. It is built once and never changed.
var known = sync.OnceValue(func() *table {
	t := &table{objects: map[string]*object{}, variants: map[string]map[string]string{
		"stage types":          {"CI": "ci stage"},
		"step types":           {},
		"infrastructure types": {"KubernetesDirect": "kubernetes infrastructure", "VM": "vm infrastructure", "Docker": "docker infrastructure", "Cloud": "cloud infrastructure"},
		"action types":         {"Retry": "retry", "RetryStepGroup": "retry", "ManualIntervention": "intervention"},
		"build types":          {"branch": "branch build", "tag": "tag build", "PR": "pull request build", "commitSha": "commit build"},
	}}
	for _, group := range [][]object{pipelineObjects(), stageObjects(), nodeObjects(), stepObjects()} {
		for i := range group {
			t.add(&group[i])
		}
	}
	for name := range stepSpecs() {
		t.variants["step types"][name] = "step " + name
	}
	return t
})

func (t *table) add(o *object) {
	o.index = make(map[string]int, len(o.keys))
	for i, k := range o.keys {
		o.index[k.name] = i
	}
	t.objects[o.name] = o
}

// Short forms of keys for the tables.

func text(name, about string) key     { return key{name: name, shape: textShape, about: about} }
func boolean(name, about string) key  { return key{name: name, shape: boolShape, about: about} }
func number(name, about string) key   { return key{name: name, shape: numberShape, about: about} }
func list(name, about string) key     { return key{name: name, shape: listShape, about: about} }
func pairs(name, about string) key    { return key{name: name, shape: mapShape, about: about} }
func timeout(about string) key        { return key{name: "timeout", shape: timeShape, about: about} }
func anything(name, about string) key { return key{name: name, shape: anyShape, about: about} }
func nested(name, of, about string) key {
	return key{name: name, shape: objectShape, of: of, about: about}
}
func items(name, of, about string) key {
	return key{name: name, shape: itemsShape, of: of, about: about}
}
func spec(of, about string) key {
	return key{name: "spec", shape: specShape, of: of, about: about}
}
func words(name, about string, words ...string) key {
	return key{name: name, shape: textShape, about: about, words: words}
}
func ignored(name, reason string) key { return key{name: name, ignored: reason} }
func refused(name, reason string) key { return key{name: name, refused: reason} }

// ignoredUnless is an ignored key with values that need no warning.
func ignoredUnless(name, reason string, harmless ...string) key {
	return key{name: name, ignored: reason, harmless: harmless}
}

// needed returns the key as a required one.
func needed(k key) key { k.need = true; return k }

// spare returns the key as one whose runtime input needs no value.
func spare(k key) key { k.spare = true; return k }

// fixed returns the key as one that takes no expressions.
func fixed(k key) key { k.fixed = true; return k }
