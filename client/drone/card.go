package drone

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// A plugin writes a card for the page of the server to its output: a JSON object in base64
// between these marks. It may be longer than a line. The log has neither the card nor the marks.
const (
	cardBegin = "\x1b]1338;"
	cardEnd   = "\x1b]0m"
)

// maxCard is the size limit of a card in base64, in bytes.
const maxCard = 1 << 20

// takeCard takes a line that belongs to a card. The caller holds mu.
func (l *stepLog) takeCard(text string) bool {
	begins := strings.HasPrefix(text, cardBegin)
	if !begins && !l.inCard {
		return false
	}
	l.inCard = !strings.Contains(text, cardEnd)
	text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), cardBegin), cardEnd)
	if len(l.card)+len(text) <= maxCard {
		l.card = append(l.card, text...)
	}
	return true
}

// uploadCard sends the card of the step, if it has one. A server without cards answers 404. A
// lost card does not fail the step.
func (l *stepLog) uploadCard(ctx context.Context) {
	if len(l.card) == 0 {
		return
	}
	var card struct {
		Schema string          `json:"schema"`
		Data   json.RawMessage `json:"data"`
	}
	b, err := base64.StdEncoding.DecodeString(string(l.card))
	if err == nil {
		err = json.Unmarshal(b, &card)
	}
	if err == nil {
		_, err = l.c.attempt(ctx, request{method: http.MethodPost, path: stepPath(l.step) + "/card", body: jsonBody(card)}, nil)
	}
	if err != nil {
		l.c.cfg.Log.Debug().Err(err).Int64("step", l.step).Msg("the card of a step is lost")
		return
	}
	l.c.setSchema(l.step, card.Schema)
}

// setSchema sets the schema of a card in the record of its step.
func (c *Client) setSchema(id int64, schema string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.stages {
		r.mu.Lock()
		for _, s := range r.steps {
			if s.record.number("id") == id {
				s.record = s.record.with(map[string]any{"schema": schema})
			}
		}
		r.mu.Unlock()
	}
}
