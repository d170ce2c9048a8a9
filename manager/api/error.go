package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/retryafter"
)

// Error is an answer that is not a success.
type Error struct {
	// Status is the status of HTTP:
	//
	//	400       the request is invalid; Message names the member
	//	401, 403  the token does not belong to the account, or does not permit the call
	//	404       the id is unknown or forgotten
	//	409       something else has the id, or the state does not permit the call
	//	413       the body is too large
	//	429       a budget is used up; the manager did nothing
	//	503       the store does not answer, or the manager is closing; it may have executed the call
	//	507       the log service has no space
	Status int `json:"-"`
	// Message describes the problem and a remedy.
	Message string `json:"error_msg"`
	// Problems are the places of a pipeline that are wrong.
	Problems []Problem `json:"problems,omitempty"`
	// RetryAfter is the pause that the manager asks for, or 0.
	RetryAfter time.Duration `json:"-"`
	// Foreign reports that the answer is not one of a manager, but for example of a proxy.
	Foreign bool `json:"-"`
}

func (e *Error) Error() string { return e.Message }

// IsStatus reports whether an error is an [Error] with a status of HTTP.
func IsStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// temporary reports whether the same call may succeed later.
func (e *Error) temporary() bool {
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// Problem is an error or a warning at a place of a pipeline.
type Problem struct {
	// File, Line and Column are the place, counted from 1. They may be absent.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Severity is "error" or "warning".
	Severity string `json:"severity"`
	// Code is a stable word for programs, for example unknown-key.
	Code string `json:"code"`
	// Path is the place in the document, for example pipeline.stages[0].stage.spec.
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
	// Hint says what to write instead.
	Hint string `json:"hint,omitempty"`
}

// errorOf reads an answer that is not a success.
func errorOf(answer *http.Response) *Error {
	const most = 1 << 20 // bytes; a pipeline may have many problems
	e := &Error{Status: answer.StatusCode}
	body, _ := io.ReadAll(io.LimitReader(answer.Body, most)) // an incomplete text is better than none
	if json.Unmarshal(body, e) != nil || e.Message == "" {
		e.Message, e.Foreign = foreignMessage(answer, body), true
	}
	e.RetryAfter = retryafter.Parse(answer.Header, time.Now())
	return e
}

// foreignMessage describes an answer that is not one of the manager, for example of a proxy.
func foreignMessage(answer *http.Response, body []byte) string {
	const most = 200
	text := strings.Join(strings.Fields(string(body)), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	message := fmt.Sprintf("%s %s answered %s, which is no answer of a manager: check the address",
		answer.Request.Method, answer.Request.URL.Redacted(), answer.Status)
	if text != "" {
		message += ": " + strconv.Quote(text)
	}
	return message
}
