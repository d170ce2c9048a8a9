package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write openapi.json")

// The description is the one that the types and calls of this package give. "go generate" writes it.
func TestTheDescriptionIsCurrent(t *testing.T) {
	t.Parallel()
	want := describe(t)
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", want, 0o600))
		return
	}
	assert.Equal(t, string(want), string(OpenAPI()), "run go generate ./manager/api")
}

type object = map[string]any

func describe(t *testing.T) []byte {
	t.Helper()
	d := describer{schemas: object{}, docs: comments(t)}
	paths := object{}
	for _, o := range operations {
		path, _ := paths[o.path].(object)
		if path == nil {
			path = object{}
			paths[o.path] = path
		}
		path[strings.ToLower(o.method)] = d.operation(&o)
	}
	d.schema(reflect.TypeFor[Error]())
	refusals := object{}
	for status, text := range statusTexts {
		refusals[strconv.Itoa(status)] = object{
			"description": text, "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/Error"}}},
		}
	}
	var groups []any
	for _, name := range []string{"manager", "runs", "webhooks", "logs", "upload", "open"} {
		groups = append(groups, object{"name": name, "description": tags[name]})
	}
	out := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "dlite manager", "version": "1",
			"description": "The API of a manager. Times are RFC 3339. Every call has the account in the query: accountId, and accountID for the log service. " +
				"Calls refuse parameters and members that they do not know. After a 503 the manager may have executed the call: repeat it under the same id.",
		},
		"tags": groups, "paths": paths,
		"components": object{
			"schemas": d.schemas, "responses": refusals,
			"securitySchemes": object{
				"token":    object{"type": "http", "scheme": "bearer", "description": "A token of the account, for example of `manager token`."},
				"logToken": object{"type": "apiKey", "in": "header", "name": "X-Harness-Token"},
			},
		},
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	require.NoError(t, e.Encode(out))
	return b.Bytes()
}

// describer makes schemas.
type describer struct {
	schemas object
	docs    map[string]string // of types, and of fields as Type.Field
}

var statusTexts = map[int]string{
	400: "The request is invalid. The message names the member.", 401: "The token is not valid.", 403: "The token does not permit the call.",
	404: "The id is unknown or forgotten.", 408: "The body did not arrive in time.", 409: "Something else has the id, or the state does not permit the call.",
	410: "The link was used.", 413: "The body is too large.", 422: "The event does not fit the trigger.", 429: "A budget is used up, or too many requests with the token, or from the address, run at the same time. Retry-After has the pause in seconds.",
	500: "The manager could not execute the call.", 503: "The store does not answer, or the server is closing. Retry-After has the pause in seconds.",
	507: "There is no space.",
}

func (d *describer) operation(o *operation) object {
	out := object{"operationId": o.id, "summary": o.summary, "tags": []string{o.tag}}
	var params []any
	switch o.tag {
	case "logs":
		out["security"] = []any{object{"logToken": []string{}}}
		params = append(params, object{"name": "accountID", "in": "query", "required": true, "schema": object{"type": "string"}})
	case "manager", "runs":
		out["security"] = []any{object{"token": []string{}}}
		params = append(params, object{"name": "accountId", "in": "query", "required": true, "schema": object{"type": "string"}})
	default:
		out["security"] = []any{}
	}
	for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(o.path, -1) {
		params = append(params, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, name := range o.query {
		name, many := strings.CutSuffix(name, "*")
		params = append(params, parameters[name].describe(name, many))
	}
	if params != nil {
		out["parameters"] = params
	}
	if o.body != nil {
		out["requestBody"] = object{"required": !o.optional, "content": object{"application/json": object{"schema": d.schema(reflect.TypeOf(o.body))}}}
	} else if o.anyBody != "" {
		out["requestBody"] = object{"required": true, "content": object{o.anyBody: object{}}}
	}
	answers := object{strconv.Itoa(o.status): d.success(o, "The call was successful.")}
	if o.repeated != 0 {
		answers[strconv.Itoa(o.repeated)] = d.success(o, "The manager had done this before.")
	}
	if o.repeated == 204 {
		answers["204"] = object{"description": "Nothing will follow."}
	}
	for _, status := range append(slices.Clone(commonErrors[o.tag]), o.errors...) {
		answers[strconv.Itoa(status)] = object{"$ref": "#/components/responses/" + strconv.Itoa(status)}
	}
	out["responses"] = answers
	return out
}

func (d *describer) success(o *operation, text string) object {
	out := object{"description": text}
	switch {
	case o.media != "" && o.answer != nil: // a sequence of values
		ref := d.schema(reflect.TypeOf(o.answer))
		out["content"] = object{o.media: object{"schema": object{"type": "string", "contentMediaType": "application/json", "contentSchema": ref}}}
	case o.media != "":
		out["content"] = object{o.media: object{}}
	case o.answer != nil:
		out["content"] = object{"application/json": object{"schema": d.schema(reflect.TypeOf(o.answer))}}
	}
	return out
}

func (p parameter) describe(name string, many bool) object {
	kind := object{"type": "string"}
	if p.kind != "" {
		kind["type"] = p.kind
	}
	if p.values != nil {
		kind["enum"] = p.values
	}
	if many {
		kind = object{"type": "array", "items": kind}
	}
	if p.name != "" {
		name = p.name
	}
	out := object{"name": name, "in": "query", "description": p.text, "schema": kind}
	if p.required {
		out["required"] = true
	}
	return out
}

// schema returns the schema of a type. Structs are components.
func (d *describer) schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Interface:
		return object{}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Struct:
		name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if d.schemas[name] == nil {
			d.schemas[name] = object{} // types may contain themselves
			d.schemas[name] = d.structure(t, name)
		}
		return object{"$ref": "#/components/schemas/" + name}
	default:
		panic(fmt.Sprint("no schema for ", t))
	}
}

func (d *describer) structure(t reflect.Type, name string) object {
	wire := map[string]string{}
	for f := range t.Fields() {
		wire[f.Name], _, _ = strings.Cut(f.Tag.Get("json"), ",")
	}
	properties, required := object{}, []string{}
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		member, options, _ := strings.Cut(tag, ",")
		s := d.schema(f.Type)
		if text := d.docs[t.Name()+"."+f.Name]; text != "" {
			s["description"] = plain(text, wire)
		}
		properties[member] = s
		if options == "" {
			required = append(required, member)
		}
	}
	if given, ok := requestRequired[name]; ok {
		required = given
	}
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	if slices.Contains(closed, name) {
		out["additionalProperties"] = false
	}
	if text := d.docs[t.Name()]; text != "" {
		text = strings.TrimPrefix(strings.TrimPrefix(text, t.Name()+" is "), t.Name()+" ")
		out["description"] = strings.ToUpper(text[:1]) + plain(text[1:], wire)
	}
	return out
}

var (
	link = regexp.MustCompile(`\[(?:Client\.)?(\w+)\]`)
	word = regexp.MustCompile(`\b[A-Z]\w*`)
)

// plain replaces the names of Go in a comment by the names of the wire format.
func plain(text string, wire map[string]string) string {
	text = link.ReplaceAllString(text, "$1")
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if member := wire[w]; member != "" && member != "-" {
			return member
		}
		return w
	})
}

// comments returns the documentation of the types of this package and of their fields.
func comments(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				s := spec.(*ast.TypeSpec)
				docs[s.Name.Name] = oneLine(gen.Doc.Text())
				fields, ok := s.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range fields.Fields.List {
					for _, n := range f.Names {
						docs[s.Name.Name+"."+n.Name] = oneLine(f.Doc.Text())
					}
				}
			}
		}
	}
	return docs
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
