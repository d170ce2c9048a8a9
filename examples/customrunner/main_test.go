package main

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("RUNNER_SECRET_DEPLOY", "hunter2-not-real") //nolint:forbidigo // before any test, in the process of these tests
	goleak.VerifyTestMain(m)
}

// Rules R1, R2, P1, P5: the program runs its two task types and a stage, and resolves the secret. On a signal it
// drains and unregisters.
func TestTheProgramRunsTasksAndAStageUntilItIsInterrupted(t *testing.T) {
	srv := clienttest.NewServer()
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	over := make(chan error, 1)
	go func() {
		over <- serve(ctx, srv.URL, srv.Account, srv.Secret, "127.0.0.1:0", t.TempDir(), syscall.SIGHUP)
	}()
	run := func(typ, data string) *clienttest.Response {
		resp, err := srv.Submit(&task.Task{Type: typ, Data: json.RawMessage(data)}).Wait(ctx)
		require.NoError(t, err)
		return resp
	}
	assert.JSONEq(t, `{"words":3}`, string(run("word_count", `{"text":" how many  words"}`).Data))
	assert.JSONEq(t, `"deployed to staging"`, string(run("deploy", `{"target":"staging","key":"${{secrets.env://DEPLOY}}"}`).Data))
	bad := run("deploy", `{"key":"${{secrets.env://DEPLOY}}"}`)
	assert.Equal(t, task.Failed, bad.Code)
	assert.Contains(t, string(bad.Data), "target is empty")

	const scratch = `{"group_id":"build-1"}`
	require.Contains(t, string(run(task.TypeLocalInit, scratch).Data), stage.Success)
	step := run(task.TypeLocalExecute, `{"group_id":"build-1","id":"one","run":{"entrypoint":["sh","-c"],"commands":["exit 3"]}}`)
	assert.Contains(t, string(step.Data), `"exit_code":3`)
	require.Contains(t, string(run(task.TypeLocalCleanup, `{"network":"build-1"}`).Data), stage.Success)

	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Signal(syscall.SIGHUP))
	select {
	case err := <-over:
		require.NoError(t, err)
	case <-ctx.Done():
		require.FailNow(t, "the program does not end")
	}
	assert.Equal(t, 1, srv.Count("unregister"))
}

func TestErrorsOfTheSettingsEndTheProgram(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, serve(t.Context(), "http://127.0.0.1:1", "demo", "", "127.0.0.1:0", t.TempDir()), "secret is empty")
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close() //nolint:errcheck // a test
	secret := strings.Repeat("0", 32)
	require.ErrorContains(t, serve(t.Context(), "http://127.0.0.1:1", "demo", secret, taken.Addr().String(), t.TempDir()), "in use")
}

// The example shows how little code a runner needs. The count has each line with code, except the
// imports and main, which reads the environment.
func TestTheRunnerWithoutMainHasFewerThan40Lines(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("main.go")
	require.NoError(t, err)
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "main.go", text, 0)
	require.NoError(t, err)
	counted := map[int]bool{}
	var s scanner.Scanner
	s.Init(files.File(file.Pos()), text, nil, 0) // skips comments
	for at, tok, _ := s.Scan(); tok != token.EOF; at, tok, _ = s.Scan() {
		counted[files.Position(at).Line] = true
	}
	delete(counted, files.Position(file.Package).Line)
	for _, d := range file.Decls {
		f, function := d.(*ast.FuncDecl)
		g, declares := d.(*ast.GenDecl)
		if function && f.Name.Name == "main" || declares && g.Tok == token.IMPORT {
			for line := files.Position(d.Pos()).Line; line <= files.Position(d.End()).Line; line++ {
				delete(counted, line)
			}
		}
	}
	t.Logf("%d lines", len(counted))
	assert.Greater(t, len(counted), 20, "lines are missing in the count")
	assert.Less(t, len(counted), 40)
}
