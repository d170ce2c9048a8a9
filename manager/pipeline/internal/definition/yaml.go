package definition

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parse reads the only document of a file. Every alias is a copy of its anchor: the size of the
// copies is calculated before the first one is made.
func parse(source Source) (*Node, *Problem) {
	if problem := checkText(source); problem != nil {
		return nil, problem
	}
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(source.Text))
	if err := decoder.Decode(&document); err != nil {
		return nil, syntaxProblem(source.Name, err)
	}
	if len(document.Content) == 0 {
		return nil, newProblem(Position{File: source.Name, Line: 1, Column: 1}, "empty", "the file holds no document")
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil && len(second.Content) > 0 {
		at := second.Content[0]
		return nil, newProblem(Position{source.Name, at.Line, at.Column}, "several-documents",
			"the file holds more than one document: put each pipeline into a file of its own")
	}
	c := converter{file: source.Name, sizes: map[*yaml.Node]int{}}
	if _, problem := c.measure(document.Content[0], 1); problem != nil {
		return nil, problem
	}
	root := new(Node)
	if problem := c.fill(document.Content[0], root, 1); problem != nil {
		return nil, problem
	}
	return root, nil
}

// ParseValue reads a value that is written as YAML within a value of a pipeline, with the same
// bounds. It returns nil, bool, int64, float64, string, []any or map[string]any.
func ParseValue(text string) (any, error) {
	n, problem := parse(Source{Text: []byte(text)})
	if problem != nil {
		return nil, *problem
	}
	return n.Plain(), nil
}

// checkText refuses a file by its bytes alone. The parser needs about 500 bytes of memory for
// each mark.
func checkText(source Source) *Problem {
	start := Position{File: source.Name, Line: 1, Column: 1}
	if len(source.Text) > maxText {
		return newProblem(start, "too-large", fmt.Sprintf("the file has %d bytes: at most %d are read", len(source.Text), maxText))
	}
	if !utf8.Valid(source.Text) {
		return newProblem(start, "encoding", "the file is not UTF-8: save it as UTF-8")
	}
	marks := 0
	for _, b := range source.Text {
		switch b {
		case '\n', '\r', ',', '[', '{':
			marks++
		case 0:
			return newProblem(start, "encoding", "the file holds a zero byte: it is not text")
		}
	}
	if marks > maxMarks {
		return newProblem(start, "too-large", fmt.Sprintf("the file has %d lines, commas and brackets: at most %d are read", marks, maxMarks))
	}
	return nil
}

var syntaxLine = regexp.MustCompile(`^yaml: line (\d+): `)

// syntaxProblem takes the line out of the parser's error. The parser knows no column.
func syntaxProblem(file string, err error) *Problem {
	at, text := Position{File: file, Line: 1}, err.Error()
	if err.Error() == "EOF" {
		at.Column = 1
		return newProblem(at, "empty", "the file holds no document")
	}
	if match := syntaxLine.FindStringSubmatch(text); match != nil {
		at.Line, _ = strconv.Atoi(match[1])
		text = text[len(match[0]):]
	}
	return newProblem(at, "syntax", "not valid YAML: "+strings.TrimPrefix(text, "yaml: "))
}

// converter makes nodes of the parser's nodes.
type converter struct {
	file  string
	sizes map[*yaml.Node]int // of anchors, in nodes; -1 while the anchor is measured
	slab  []Node
}

func (c *converter) at(n *yaml.Node) Position {
	return Position{File: c.file, Line: n.Line, Column: n.Column}
}

// measure returns the number of nodes that n has with its aliases expanded. It visits every
// anchor once, so its time does not depend on the expanded size.
func (c *converter) measure(n *yaml.Node, depth int) (int, *Problem) {
	if depth > maxDepth {
		return 0, newProblem(c.at(n), "too-deep", fmt.Sprintf("the document is nested more than %d levels", maxDepth))
	}
	if n.Kind == yaml.AliasNode {
		return c.measureAnchor(n)
	}
	if n.Anchor != "" {
		c.sizes[n] = -1
	}
	size := 1
	for _, child := range n.Content {
		part, problem := c.measure(child, depth+1)
		if problem != nil {
			return 0, problem
		}
		if size += part; size > maxNodes {
			return 0, newProblem(c.at(child), "too-large",
				fmt.Sprintf("the document has more than %d values with its aliases expanded", maxNodes))
		}
	}
	if n.Anchor != "" {
		c.sizes[n] = size
	}
	return size, nil
}

// measureAnchor returns the size of the anchor that the alias n names. fill checks the depth of
// the copy.
func (c *converter) measureAnchor(n *yaml.Node) (int, *Problem) {
	size, known := c.sizes[n.Alias]
	if !known || size < 0 {
		return 0, newProblem(c.at(n), "alias", fmt.Sprintf("the alias *%s stands inside its own anchor", n.Value))
	}
	return size, nil
}

// fill makes into a copy of n with its aliases expanded.
func (c *converter) fill(n *yaml.Node, into *Node, depth int) *Problem {
	if depth > maxDepth {
		return newProblem(c.at(n), "too-deep", fmt.Sprintf("the document is nested more than %d levels with its aliases expanded", maxDepth))
	}
	into.Position = c.at(n)
	switch n.Kind {
	case yaml.AliasNode:
		return c.fill(n.Alias, into, depth)
	case yaml.SequenceNode:
		return c.fillList(n, into, depth)
	case yaml.MappingNode:
		return c.fillMap(n, into, depth)
	default:
		return c.fillScalar(n, into)
	}
}

func (c *converter) fillList(n *yaml.Node, into *Node, depth int) *Problem {
	if problem := c.checkTag(n, "!!seq"); problem != nil {
		return problem
	}
	into.Kind = List
	into.Items = make([]*Node, len(n.Content))
	for i, child := range n.Content {
		into.Items[i] = c.node()
		if problem := c.fill(child, into.Items[i], depth+1); problem != nil {
			return problem
		}
	}
	return nil
}

func (c *converter) fillMap(n *yaml.Node, into *Node, depth int) *Problem {
	if problem := c.checkTag(n, "!!map"); problem != nil {
		return problem
	}
	into.Kind = Map
	into.Fields = make([]Field, 0, len(n.Content)/2)
	var merged []*Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], c.node()
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null" {
			return newProblem(c.at(n.Content[i]), "syntax", "a key must be text")
		}
		if problem := c.fill(n.Content[i+1], value, depth+1); problem != nil {
			return problem
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		into.Fields = append(into.Fields, Field{Key: key.Value, At: c.at(n.Content[i]), Value: value})
	}
	if problem := duplicateKey(into.Fields); problem != nil {
		return problem
	}
	for _, from := range merged {
		if problem := mergeKeys(into, from); problem != nil {
			return problem
		}
	}
	return nil
}

// duplicateKey finds a key that stands twice.
func duplicateKey(fields []Field) *Problem {
	if len(fields) <= 16 {
		for i := range fields {
			for j := range i {
				if fields[i].Key == fields[j].Key {
					return duplicate(fields[j], fields[i])
				}
			}
		}
		return nil
	}
	seen := make(map[string]int, len(fields))
	for i, field := range fields {
		if first, twice := seen[field.Key]; twice {
			return duplicate(fields[first], field)
		}
		seen[field.Key] = i
	}
	return nil
}

func duplicate(first, second Field) *Problem {
	return newProblem(second.At, "duplicate-key",
		fmt.Sprintf("the key %s is already in line %d: remove one of the two", quote(second.Key), first.At.Line))
}

// mergeKeys carries out the merge key "<<": keys of the map itself win, then those of the first
// merged map.
func mergeKeys(into, from *Node) *Problem {
	maps := []*Node{from}
	if from.Kind == List {
		maps = from.Items
	}
	present := keysOf(into.Fields)
	for _, m := range maps {
		if m.Kind != Map {
			return newProblem(m.Position, "syntax", "the merge key << takes a map or a list of maps")
		}
		for _, field := range m.Fields {
			if !present[field.Key] {
				present[field.Key] = true
				into.Fields = append(into.Fields, field)
			}
		}
	}
	return nil
}

func keysOf(fields []Field) map[string]bool {
	keys := make(map[string]bool, len(fields))
	for _, field := range fields {
		keys[field.Key] = true
	}
	return keys
}

func (c *converter) fillScalar(n *yaml.Node, into *Node) *Problem {
	into.Block = n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if n.Style&yaml.TaggedStyle != 0 {
		return c.fillTagged(n, into)
	}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		into.Value = n.Value
		return nil
	}
	into.Value = plain(n.Value)
	return nil
}

// fillTagged takes a scalar with an explicit tag.
func (c *converter) fillTagged(n *yaml.Node, into *Node) *Problem {
	into.Value = n.Value
	switch tag := n.ShortTag(); tag {
	case "!!str", "!":
		return nil
	case "!!int", "!!float", "!!bool", "!!null":
		into.Value = plain(n.Value)
		return nil
	default:
		return newProblem(c.at(n), "syntax", fmt.Sprintf("the tag %s is not supported", tag))
	}
}

func (c *converter) checkTag(n *yaml.Node, want string) *Problem {
	if n.Style&yaml.TaggedStyle != 0 && n.ShortTag() != want {
		return newProblem(c.at(n), "syntax", fmt.Sprintf("the tag %s is not supported", n.ShortTag()))
	}
	return nil
}

// node allocates nodes in groups, which halves the time of large documents.
func (c *converter) node() *Node {
	if len(c.slab) == 0 {
		c.slab = make([]Node, 128)
	}
	n := &c.slab[0]
	c.slab = c.slab[1:]
	return n
}

// plain returns the value of a scalar without quotes. A number stays text if the number would
// be written differently: 1.10, 007 and 1e3 keep their spelling.
func plain(text string) any {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return nil
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	if c := text[0]; c != '-' && (c < '0' || c > '9') {
		return text
	}
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(whole, 10) == text {
		return whole
	}
	if number, err := strconv.ParseFloat(text, 64); err == nil && strconv.FormatFloat(number, 'f', -1, 64) == text && text != "-0" {
		return number
	}
	return text
}
