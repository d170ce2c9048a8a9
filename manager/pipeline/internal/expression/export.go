package expression

import "errors"

// Escape returns text from outside for the payload of a task. The delegate finds no reference in it
// and inserts it as it is.
func Escape(text string) string {
	if !hasMeaning(text) {
		return text
	}
	escaped, err := (&mixed{[]span{{text, false}}}).export()
	if err != nil { // only text of the author fails
		return ""
	}
	return escaped
}

// export converts the result of an evaluation to a value for the caller: nil, bool, int64,
// float64, string, []any or map[string]any. In the mode Late, data is escaped. text is the text
// that was evaluated.
func (ev *evaluation) export(v any, text string) (any, error) {
	v, err := ev.exportItem(v, 0)
	if err != nil {
		return nil, within(at(err, 0), text)
	}
	return v, nil
}

func (ev *evaluation) exportItem(v any, level int) (any, error) {
	if err := ev.step(1); err != nil {
		return nil, err
	}
	if level > maxLevels {
		return nil, errors.New("the value is nested too deep")
	}
	v, err := ev.use(v, "an item")
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		if !hasMeaning(v) {
			return v, nil
		}
		return ev.exportText(&mixed{[]span{{v, false}}})
	case *mixed:
		return ev.exportText(v)
	case moment:
		return v.String(), nil
	case []any:
		items := make([]any, len(v))
		for i, item := range v {
			if items[i], err = ev.exportItem(item, level+1); err != nil {
				return nil, err
			}
		}
		return items, nil
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, item := range v {
			name, err := ev.exportItem(k, level+1)
			if err != nil {
				return nil, err
			}
			if m[name.(string)], err = ev.exportItem(item, level+1); err != nil {
				return nil, err
			}
		}
		return m, nil
	case Object:
		return nil, errors.New("the value is a map of the run: name one of its members")
	}
	return v, nil
}

func (ev *evaluation) exportText(m *mixed) (any, error) {
	if ev.env.Secrets == Refuse {
		return join(m.spans), nil
	}
	return m.export()
}

// plain returns the value for a record: secrets are references, and maps of the run are left out.
func plain(v any, level int) any {
	v, _ = normal(v)
	switch v := v.(type) {
	case Text:
		return v.Value
	case Secret:
		return referenceBegin + v.ID + referenceEnd
	case *mixed:
		return join(v.spans)
	case moment:
		return v.String()
	case nil, bool, int64, float64, string:
		return v
	}
	if level > maxLevels {
		return nil
	}
	switch v := v.(type) {
	case []any:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = plain(item, level+1)
		}
		return items
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, item := range v {
			m[k] = plain(item, level+1)
		}
		return m
	}
	return nil
}
