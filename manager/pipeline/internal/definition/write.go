package definition

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML returns the document of the pipeline with its templates and inputs in place. Read reads
// it without templates and input sets to the same pipeline.
func (p *Pipeline) YAML() ([]byte, error) { return Write(p.Document) }

// Write returns a node as YAML.
func Write(n *Node) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(encoded(n)); err != nil {
		return nil, fmt.Errorf("write the pipeline as YAML: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("write the pipeline as YAML: %w", err)
	}
	return out.Bytes(), nil
}

func encoded(n *Node) *yaml.Node {
	switch {
	case n == nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	case n.Kind == List:
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range n.Items {
			list.Content = append(list.Content, encoded(item))
		}
		return list
	case n.Kind == Map:
		m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, field := range n.Fields {
			m.Content = append(m.Content, encodedText(field.Key), encoded(field.Value))
		}
		return m
	}
	switch value := n.Value.(type) {
	case string:
		return encodedText(value)
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: n.Text()}
	}
}

// encodedText chooses the style of text: a block for lines that a block keeps, plain for words,
// quotes for the rest.
func encodedText(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	switch {
	case strings.Contains(text, "\n") && blockKeeps(text):
		n.Style = yaml.LiteralStyle
	case plain(text) == any(text) && text == strings.TrimSpace(text) && !strings.ContainsFunc(text, unusual):
	default:
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// blockKeeps reports whether a literal block reads as the same text.
func blockKeeps(text string) bool {
	if strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\n") || strings.HasSuffix(text, "\n\n") {
		return false
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimRight(line, " \t") != line || strings.ContainsFunc(line, unusual) {
			return false
		}
	}
	return true
}

// unusual reports characters that need escapes.
func unusual(c rune) bool {
	return c < ' ' || c == 0x7f || (c > 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffd
}
