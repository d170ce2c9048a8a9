package openapitest

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// CheckRequest compares a described type with the type that a server decodes, for the types that are not of package api:
// each member of one is in the other, with the same type.
func (d *Document) CheckRequest(t *testing.T, name string, v any) {
	t.Helper()
	d.compare(t, name, reflect.TypeOf(v), map[string]bool{})
}

func (d *Document) compare(t *testing.T, name string, typ reflect.Type, seen map[string]bool) {
	t.Helper()
	if seen[name] {
		return
	}
	seen[name] = true
	s := d.Components.Schemas[name]
	require.NotNil(t, s, "the description has no type %s", name)
	known := map[string]bool{}
	for _, f := range reflect.VisibleFields(typ) {
		member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if member == "-" || !f.IsExported() || f.Anonymous && member == "" {
			continue
		}
		if member == "" {
			member = f.Name
		}
		known[member] = true
		p := s.Properties[member]
		if !assert.NotNil(t, p, "%s.%s is not described", name, member) {
			continue
		}
		d.same(t, name+"."+member, p, f.Type, seen)
	}
	for member := range s.Properties {
		assert.True(t, known[member], "%s.%s is described, but %s does not have it", name, member, typ)
	}
}

// same compares a schema with a type.
func (d *Document) same(t *testing.T, path string, s *Schema, typ reflect.Type, seen map[string]bool) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		if assert.Equal(t, reflect.Struct, typ.Kind(), path) {
			d.compare(t, name, typ, seen)
		}
		return
	}
	switch {
	case typ == reflect.TypeFor[time.Time]():
		assert.Equal(t, "date-time", s.Format, path)
	case typ == reflect.TypeFor[json.RawMessage](), typ.Kind() == reflect.Interface:
		assert.Empty(t, s.Type, path)
	case typ == reflect.TypeFor[[]byte]():
		assert.Equal(t, "base64", s.Encoding, path)
	case typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		assert.Equal(t, "string", s.Type, path)
	case typ.Kind() == reflect.Slice:
		if assert.Equal(t, "array", s.Type, path) {
			d.same(t, path+"[]", s.Items, typ.Elem(), seen)
		}
	case typ.Kind() == reflect.Map:
		values := &Schema{}
		if assert.Equal(t, "object", s.Type, path) && assert.NoError(t, json.Unmarshal(s.Values, values), path) {
			d.same(t, path+"{}", values, typ.Elem(), seen)
		}
	default:
		kinds := map[reflect.Kind]string{
			reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer", reflect.Uint64: "integer", reflect.Struct: "a struct",
		}
		assert.Equal(t, kinds[typ.Kind()], s.Type, path)
	}
}
