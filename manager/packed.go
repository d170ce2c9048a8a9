package manager

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"io"
)

// packed is the payload of a part of a stage. A large one is compressed, in memory and in
// the store. The submission compresses it, outside of all locks.
type packed struct {
	text  json.RawMessage // if it is not compressed
	small []byte
}

// packFrom is the size from which a payload is compressed, in bytes.
const packFrom = 64 << 10

// pack compresses a large payload, unless that saves little.
func pack(text json.RawMessage) packed {
	if len(text) < packFrom {
		return packed{text: text}
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil || b.Len() > len(text)/4*3 {
		return packed{text: text}
	}
	return packed{small: bytes.Clone(b.Bytes())}
}

// json returns the payload.
func (p packed) json() json.RawMessage {
	if p.small == nil {
		return p.text
	}
	text, err := io.ReadAll(flate.NewReader(bytes.NewReader(p.small)))
	if err != nil {
		return nil // the store authenticates its content
	}
	return text
}
