package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// The bounds of a file. The parser needs about 500 bytes of memory for each mark.
const (
	maxText  = 1 << 20 // bytes of the file
	maxMarks = 200_000 // line ends, commas and opening brackets of the file
	maxNodes = 200_000 // values of the file with its aliases expanded
	maxDepth = 64      // levels of lists and maps
	maxKey   = 256     // bytes of the name of a member

	// bytesOfValue is the number of bytes for which a long value counts as one more.
	bytesOfValue = 32
)

// readDocuments reads the documents of a file.
func readDocuments(data []byte) ([]value, error) {
	if err := checkText(data); err != nil {
		return nil, err
	}
	var list []value
	bounds := bounds{sizes: map[*yaml.Node]int{}, left: maxNodes}
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: "))
		}
		if len(document.Content) == 0 {
			continue
		}
		size, err := bounds.measure(document.Content[0], 1)
		if err != nil {
			return nil, err
		}
		bounds.left -= size
		list = append(list, value{node: document.Content[0]})
	}
}

// checkText refuses a file by its bytes alone.
func checkText(data []byte) error {
	if len(data) > maxText {
		return fmt.Errorf("the file has %d bytes: at most %d are read", len(data), maxText)
	}
	if !utf8.Valid(data) {
		return errors.New("the file is not UTF-8: save it as UTF-8")
	}
	marks := 0
	for _, b := range data {
		switch b {
		case '\n', '\r', ',', '[', '{':
			marks++
		case 0:
			return errors.New("the file holds a zero byte: it is not text")
		}
	}
	if marks > maxMarks {
		return fmt.Errorf("the file has %d lines, commas and brackets: at most %d are read", marks, maxMarks)
	}
	return nil
}

// bounds measures documents before their aliases are followed.
type bounds struct {
	sizes map[*yaml.Node]int // of anchors, in values; -1 while the anchor is measured
	deep  map[*yaml.Node]int
	left  int
}

// measure returns how many values n has with its aliases expanded. It visits each anchor
// once, so its time does not depend on the expanded size.
func (b *bounds) measure(n *yaml.Node, depth int) (int, error) {
	size, _, err := b.walk(n, depth)
	return size, err
}

func (b *bounds) walk(n *yaml.Node, depth int) (size, levels int, err error) {
	at := value{node: n}
	if depth > maxDepth {
		return 0, 0, at.errorf("the file is nested more than %d levels", maxDepth)
	}
	if n.Kind == yaml.AliasNode {
		size, known := b.sizes[n.Alias]
		if !known || size < 0 {
			return 0, 0, at.errorf("the alias *%s stands inside its own anchor", n.Value)
		}
		if depth+b.deep[n.Alias] > maxDepth {
			return 0, 0, at.errorf("the file is nested more than %d levels with its aliases expanded", maxDepth)
		}
		return size, b.deep[n.Alias], nil
	}
	if n.Anchor != "" {
		b.sizes[n] = -1
	}
	size = 1 + len(n.Value)/bytesOfValue
	for _, child := range n.Content {
		part, below, err := b.walk(child, depth+1)
		if err != nil {
			return 0, 0, err
		}
		levels = max(levels, below+1)
		if size += part; size > b.left {
			return 0, 0, value{node: child}.errorf("the file has more than %d values with its aliases expanded", maxNodes)
		}
	}
	if n.Anchor != "" {
		if b.deep == nil {
			b.deep = map[*yaml.Node]int{}
		}
		b.sizes[n], b.deep[n] = size, levels
	}
	return size, levels, nil
}

// value is a value of a file with its path, such as steps[0].image.
type value struct {
	node *yaml.Node
	path string
}

// member is a member of a map.
type member struct {
	key   string
	value value
}

// content follows an alias.
func (v value) content() *yaml.Node {
	if v.node.Kind == yaml.AliasNode {
		return v.node.Alias
	}
	return v.node
}

func (v value) isMap() bool    { return v.content().Kind == yaml.MappingNode }
func (v value) isList() bool   { return v.content().Kind == yaml.SequenceNode }
func (v value) isScalar() bool { return v.content().Kind == yaml.ScalarNode }
func (v value) isNull() bool   { return v.isScalar() && v.content().ShortTag() == "!!null" }

// errorf returns an error with the place and the path of the value.
func (v value) errorf(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if v.path != "" {
		text = v.path + ": " + text
	}
	return fmt.Errorf("line %d, column %d: %s", v.node.Line, v.node.Column, text)
}

// wrap adds the place to an error. It returns nil for nil.
func (v value) wrap(err error) error {
	if err == nil {
		return nil
	}
	return v.errorf("%v", err)
}

// kind names the kind of the value in errors.
func (v value) kind() string {
	switch {
	case v.isMap():
		return "a map"
	case v.isList():
		return "a list"
	case v.isNull():
		return "empty"
	}
	return "a single value"
}

// text returns a scalar as it is written. It is empty for null.
func (v value) text() (string, error) {
	switch {
	case v.isNull():
		return "", nil
	case !v.isScalar():
		return "", v.errorf("it is %s, but must be text: put text that contains a colon in quotes", v.kind())
	}
	return v.content().Value, nil
}

// bool returns true or false, which may be written as in YAML 1.1.
func (v value) bool() (bool, error) {
	if v.isNull() {
		return false, nil
	}
	if v.isScalar() {
		if b, ok := yaml11Bool(v.content().Value); ok {
			return b, nil
		}
	}
	return false, v.errorf("it must be true or false")
}

func yaml11Bool(text string) (b, ok bool) {
	switch text {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE":
		return true, true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

// integer returns a number that is not negative.
func (v value) integer() (int64, error) {
	text, err := v.text()
	if err != nil || text == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, v.errorf("%.40q is not a whole number from 0", text)
	}
	return n, nil
}

var sizePattern = regexp.MustCompile(`^(\d{1,15}(?:\.\d{1,6})?) ?([kKmMgGtTpP]?)[iI]?[bB]?$`)

// size returns a number of bytes, which may have a unit such as 64m or 1.5GiB.
func (v value) size() (int64, error) {
	text, err := v.text()
	if err != nil || text == "" {
		return 0, err
	}
	parts := sizePattern.FindStringSubmatch(text)
	if parts == nil {
		return 0, v.errorf("%.40q is not a size such as 64MiB", text)
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	if parts[2] != "" {
		number *= float64(int64(1) << (10 * (1 + strings.Index("kmgtp", strings.ToLower(parts[2])))))
	}
	if err != nil || number > 1<<60 {
		return 0, v.errorf("the size %.40q is too large", text)
	}
	return int64(number), nil
}

// items returns the values of a list. It is empty for null.
func (v value) items() ([]value, error) {
	switch {
	case v.isNull():
		return nil, nil
	case !v.isList():
		return nil, v.errorf("it is %s, but must be a list", v.kind())
	}
	var list []value
	for i, item := range v.content().Content {
		list = append(list, value{node: item, path: v.path + "[" + strconv.Itoa(i) + "]"})
	}
	return list, nil
}

// readList reads each value of a list.
func readList[T any](v value, read func(value) (T, error)) ([]T, error) {
	items, err := v.items()
	if err != nil {
		return nil, err
	}
	var list []T
	for _, item := range items {
		one, err := read(item)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// texts returns the scalars of a list.
func (v value) texts() ([]string, error) { return readList(v, value.text) }

// members returns the members of a map and of its merge keys. The first merged map
// wins over the others, and the map's own members win over all. Of equal keys the last wins.
func (v value) members() ([]member, error) {
	if v.isNull() {
		return nil, nil
	}
	if !v.isMap() {
		return nil, v.errorf("it is %s, but must be a map", v.kind())
	}
	content := v.content().Content
	var own, merged []member
	for i := 0; i+1 < len(content); i += 2 {
		key := value{node: content[i]}.content()
		if key.Kind != yaml.ScalarNode {
			return nil, value{node: content[i], path: v.path}.errorf("a key must be text")
		}
		if len(key.Value) > maxKey {
			return nil, value{node: content[i], path: v.path}.errorf("a name has %d bytes: at most %d are possible", len(key.Value), maxKey)
		}
		one := member{key.Value, value{node: content[i+1], path: v.path + "." + key.Value}}
		if v.path == "" {
			one.value.path = key.Value
		}
		if key.ShortTag() != "!!merge" {
			own = append(own, one)
			continue
		}
		more, err := v.merge(one.value)
		if err != nil {
			return nil, err
		}
		merged = append(merged, more...)
	}
	return unique(own, merged), nil
}

// member returns the text of a member of a map. It is empty if there is none.
func (v value) member(key string) (string, error) {
	members, err := v.members()
	if err != nil {
		return "", err
	}
	for _, m := range members {
		if m.key == key {
			return m.value.text()
		}
	}
	return "", nil
}

// merge returns the members of a merge key.
func (v value) merge(from value) ([]member, error) {
	from.path = v.path
	if !from.isList() {
		return from.members()
	}
	var all []member
	for _, item := range from.content().Content {
		members, err := value{node: item, path: v.path}.members()
		if err != nil {
			return nil, err
		}
		all = append(all, members...)
	}
	return all, nil
}

// unique removes the members that another one replaces.
func unique(own, merged []member) []member {
	place := map[string]int{}
	var list []member
	for _, m := range own {
		if i, twice := place[m.key]; twice {
			list[i] = m
			continue
		}
		place[m.key] = len(list)
		list = append(list, m)
	}
	for _, m := range merged {
		if _, taken := place[m.key]; !taken {
			place[m.key] = len(list)
			list = append(list, m)
		}
	}
	return list
}

// read calls the function of each member. A member without an entry in fields is an error.
// One with the entry nil has no effect, as in Drone.
func (v value) read(fields map[string]func(value) error) error {
	members, err := v.members()
	if err != nil {
		return err
	}
	for _, m := range members {
		read, known := fields[m.key]
		if !known {
			return m.value.errorf("this member is not supported: remove it")
		}
		if read == nil {
			continue
		}
		if err := read(m.value); err != nil {
			return err
		}
	}
	return nil
}

// set returns a function for [value.read] that stores a value.
func set[T any](into *T, read func(value) (T, error)) func(value) error {
	return func(v value) (err error) {
		*into, err = read(v)
		return err
	}
}
