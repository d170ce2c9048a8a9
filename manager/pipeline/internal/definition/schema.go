package definition

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// schema is a part of a JSON Schema.
type schema map[string]any

// JSONSchema returns the JSON Schema (draft 7) of pipelines, for editors. It is made of the
// table that Read uses.
func JSONSchema() ([]byte, error) {
	t := known()
	definitions := schema{}
	for name, o := range t.objects {
		if name != "file" {
			definitions[definitionName(name)] = t.object(o)
		}
	}
	root := t.object(t.objects["file"])
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Pipeline"
	root["definitions"] = definitions
	return json.MarshalIndent(root, "", "  ")
}

func definitionName(object string) string { return strings.ReplaceAll(object, " ", "-") }

func reference(object string) schema {
	return schema{"$ref": "#/definitions/" + definitionName(object)}
}

func inputSchema() schema      { return schema{"type": "string", "pattern": `^\s*<\+input>`} }
func expressionSchema() schema { return schema{"type": "string", "pattern": `<\+`} }
func scalarSchema() schema {
	return schema{"type": []string{"string", "number", "boolean", "null"}}
}

func anyOf(parts ...schema) schema { return schema{"anyOf": parts} }

func (t *table) object(o *object) schema {
	properties := schema{}
	var required []string
	var rules []schema
	templated := o.key("template") != nil
	for i := range o.keys {
		k := &o.keys[i]
		properties[k.name] = t.property(k)
		if k.need {
			required = append(required, k.name)
		}
		if k.shape == specShape {
			rules = append(rules, t.variantRules(k)...)
		}
	}
	result := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 && templated {
		rules = append(rules, schema{"if": schema{"not": schema{"required": []string{"template"}}}, "then": schema{"required": required}})
	} else if len(required) > 0 {
		result["required"] = required
	}
	if len(o.one) > 0 {
		var one []schema
		for _, name := range o.one {
			one = append(one, schema{"required": []string{name}})
		}
		result["oneOf"] = one
	}
	if len(rules) > 0 {
		result["allOf"] = rules
	}
	return result
}

// variantRules make the keys of spec depend on the type.
func (t *table) variantRules(k *key) []schema {
	var rules []schema
	variants := t.variants[k.of]
	for _, name := range slices.Sorted(maps.Keys(variants)) {
		rules = append(rules, schema{
			"if":   schema{"properties": schema{"type": schema{"const": name}}, "required": []string{"type"}},
			"then": schema{"properties": schema{k.name: anyOf(reference(variants[name]), inputSchema())}},
		})
	}
	return rules
}

func (t *table) property(k *key) schema {
	if k.refused != "" {
		return schema{"not": schema{}, "description": "Not supported: " + k.refused + "."}
	}
	if k.ignored != "" {
		return schema{"description": "Ignored: " + k.ignored + "."}
	}
	p := t.shape(k)
	if k.about != "" {
		p["description"] = k.about
	}
	return p
}

func (t *table) shape(k *key) schema {
	switch k.shape {
	case textShape:
		return wordSchema(k)
	case boolShape:
		return anyOf(schema{"type": "boolean"}, expressionSchema())
	case numberShape:
		return anyOf(schema{"type": "integer"}, schema{"type": "string", "pattern": `^\s*\d+\s*$`}, expressionSchema())
	case timeShape:
		return anyOf(schema{"type": "string", "pattern": `^\s*(\d+[smhdw]\s*)*$`}, expressionSchema())
	case listShape:
		return anyOf(schema{"type": "array", "items": wordSchema(k)}, expressionSchema())
	case mapShape:
		return anyOf(schema{"type": "object", "additionalProperties": scalarSchema()}, expressionSchema())
	case objectShape:
		return anyOf(reference(k.of), inputSchema())
	case itemsShape:
		return anyOf(schema{"type": "array", "items": anyOf(reference(k.of), inputSchema())}, inputSchema())
	}
	return schema{}
}

// wordSchema offers the permitted words to editors. The reader takes them in any case.
func wordSchema(k *key) schema {
	if len(k.words) == 0 {
		return scalarSchema()
	}
	return anyOf(schema{"enum": k.words}, expressionSchema())
}
