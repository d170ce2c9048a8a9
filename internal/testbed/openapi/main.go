// Command openapi checks a description of an API, and calls against it, with the module libopenapi-validator. Its argument
// is the file with the description. Each line of the standard input is an exchange as JSON. It prints the problems and
// exits with 1 if there are any.
//
// It has its own module: no user of this project needs these requirements.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	invalid "github.com/pb33f/libopenapi-validator/errors"
)

// exchange is a request with its answer.
type exchange struct {
	Method, URL, Body string
	Header            http.Header
	Status            int
	AnswerHeader      http.Header
	Answer            string
	// Valid means that the request must be valid too.
	Valid bool
}

func main() {
	problems, err := check(os.Args[1], os.Stdin)
	if err != nil {
		fmt.Println(err)
	}
	if err != nil || problems > 0 {
		os.Exit(1)
	}
}

func check(file string, in io.Reader) (problems int, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		return 0, err
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		return 0, errors.Join(errs...)
	}
	report := func(what string, ok bool, found []*invalid.ValidationError) {
		if ok {
			return
		}
		problems++
		for _, p := range found {
			fmt.Printf("%s: %s: %s", what, p.Message, p.Reason)
			for _, s := range p.SchemaValidationErrors {
				fmt.Printf("; %s at %s", s.Reason, s.KeywordLocation)
			}
			fmt.Println()
		}
	}
	ok, found := v.ValidateDocument()
	report("the description", ok, found)
	calls := 0
	for d := json.NewDecoder(in); ; calls++ {
		var e exchange
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return problems, err
		}
		what := fmt.Sprintf("%s %s %d %.200s", e.Method, e.URL, e.Status, e.Answer)
		answer := &http.Response{StatusCode: e.Status, Header: e.AnswerHeader, Body: io.NopCloser(strings.NewReader(e.Answer))}
		r, err := e.request()
		if err != nil {
			return problems, err
		}
		ok, found = v.ValidateHttpResponse(r, answer)
		report("the answer of "+what, ok, found)
		if !e.Valid {
			continue
		}
		if r, err = e.request(); err != nil {
			return problems, err
		}
		ok, found = v.ValidateHttpRequest(r)
		report("the request of "+what, ok, found)
	}
	fmt.Println("checked", calls, "calls")
	return problems, nil
}

func (e *exchange) request() (*http.Request, error) {
	r, err := http.NewRequest(e.Method, e.URL, strings.NewReader(e.Body))
	if err == nil {
		r.Header = e.Header.Clone()
		if e.Body == "" {
			r.Body, r.ContentLength = http.NoBody, 0
		}
	}
	return r, err
}
