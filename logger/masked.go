package logger

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/rs/zerolog"
)

// Masked returns a logger that masks every key, text and number of its events
// with mask, before it passes them to log. Level, fields, hooks and time stamp of
// log stay as they are and are not masked. Values are masked as they are written,
// without JSON escapes, so a secret that contains a quote or a newline is found.
// The router's secrets middleware and the transactions give handlers and drivers
// such a logger; see [FromContext].
func Masked(log zerolog.Logger, mask Mask) zerolog.Logger {
	return zerolog.New(maskedEvents{log: log, mask: mask}).Level(log.GetLevel())
}

// maskedEvents receives events as JSON and logs them again, masked.
type maskedEvents struct {
	log  zerolog.Logger
	mask Mask
}

// Write implements [io.Writer] for events without a level.
func (m maskedEvents) Write(p []byte) (int, error) { return m.WriteLevel(zerolog.NoLevel, p) }

// WriteLevel implements [zerolog.LevelWriter].
func (m maskedEvents) WriteLevel(level zerolog.Level, p []byte) (int, error) {
	event, message := m.log.WithLevel(level), ""
	fields, err := decodeFields(p)
	if err != nil { // not an event of zerolog's: keep the text
		event.Msg(m.mask.Mask(strings.TrimSuffix(string(p), "\n")))
		return len(p), nil
	}
	for _, f := range fields {
		switch f.name {
		case zerolog.LevelFieldName: // WithLevel has added it
		case zerolog.MessageFieldName:
			message = m.messageText(f.value)
		default:
			event.RawJSON(m.mask.Mask(f.name), m.maskJSON(f.value))
		}
	}
	event.Msg(message)
	return len(p), nil
}

// messageText returns the message of an event, masked.
func (m maskedEvents) messageText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	return m.mask.Mask(text)
}

// maskJSON returns a JSON value with all keys and scalars masked.
func (m maskedEvents) maskJSON(raw json.RawMessage) json.RawMessage {
	switch raw[0] {
	case '"':
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return quoted(m.mask.Mask(string(raw)))
		}
		if masked := m.mask.Mask(text); masked != text {
			return quoted(masked)
		}
		return raw
	case '{':
		fields, err := decodeFields(raw)
		if err != nil {
			return quoted(m.mask.Mask(string(raw)))
		}
		var out bytes.Buffer
		out.WriteByte('{')
		for i, f := range fields {
			if i > 0 {
				out.WriteByte(',')
			}
			out.Write(quoted(m.mask.Mask(f.name)))
			out.WriteByte(':')
			out.Write(m.maskJSON(f.value))
		}
		out.WriteByte('}')
		return out.Bytes()
	case '[':
		var values []json.RawMessage
		if json.Unmarshal(raw, &values) != nil {
			return quoted(m.mask.Mask(string(raw)))
		}
		var out bytes.Buffer
		out.WriteByte('[')
		for i, v := range values {
			if i > 0 {
				out.WriteByte(',')
			}
			out.Write(m.maskJSON(v))
		}
		out.WriteByte(']')
		return out.Bytes()
	default: // a number, true, false or null
		if masked := m.mask.Mask(string(raw)); masked != string(raw) {
			return quoted(masked)
		}
		return raw
	}
}

// quoted returns text as a JSON string.
func quoted(text string) json.RawMessage {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string can be encoded
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// field is one member of an object.
type field struct {
	name  string
	value json.RawMessage
}

// decodeFields returns the members of a JSON object in their order, also repeated
// ones.
func decodeFields(p []byte) ([]field, error) {
	d := json.NewDecoder(bytes.NewReader(p))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.Join(errors.New("not an object"), err)
	}
	var out []field
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		f := field{name: name.(string)} // the decoder accepts only strings as keys
		if err := d.Decode(&f.value); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the object")
	}
	return out, nil
}
