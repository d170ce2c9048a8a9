// Package cgi runs standalone tasks, which belong to no stage, as calls of a program
// (rule D8). Use its handler as the fallback of the router:
//
//	programs, err := cgi.New(cgi.Config{})
//	if err != nil {
//		return err
//	}
//	defer programs.Close(ctx)
//	r := router.New(routes, router.WithNotFound(programs),
//		router.WithMiddleware(secrets.Resolve(cfg)))
//
// If the manager selects delegates by the task types of their registration, also add
// the handler to the routes for each such task type.
//
// The config of the task names a program (docs/protocol.md, section 2). The handler
// calls it as a CGI program: the data of the task is its standard input, and its standard
// output is the answer. With Go's net/http/cgi, an http.Handler becomes such a program.
// A shell script can be one, too:
//
//	#!/bin/sh
//	echo "looking" >&2
//	printf 'Status: 200 OK\nContent-Type: application/json\n\n{"ok":true}'
//
// # Programs
//
// executable_config lists the URLs of a program by os and arch, with the names of Go.
// The handler downloads the program once. The key in the cache is its checksum (sha256,
// an extension of dlite) or, for a task without a checksum, URL, name and version. The
// handler verifies the file before it decompresses it (zstd) or runs it, and never runs
// an incomplete download.
//
// repository names a git repository, or an archive of one (download), with a
// task.yml:
//
//	task:
//	  run:
//	    go: {module: ./cmd/task}     # go build in the repository
//	    bash: {script: run.sh}       # or a script: run by its #! line, or by bash
//
// The handler fetches and builds it once for each commit. It resolves a ref at each
// call, because branches move. With sha, it makes no network request for a cached commit.
// Git ignores the configuration of the machine and of the user. Credentials in a URL
// are on no command line. The deps of a task.yml
//
//	task:
//	  deps: {apt: [{name: jq}], brew: [{name: jq}]}
//
// are installed before the first build of a commit, if [Config].InstallDeps is set. The
// handler ignores the member target of executable_config, which has no known meaning. A
// program of a repository runs in the directory of the repository, which calls share.
// Any other program gets an empty directory.
//
// The handler removes the least recently used entries if the cache exceeds
// [Config].CacheSize, and entries that were not used for [Config].CacheAge. It never
// removes an entry that a call of any delegate uses.
//
// # The call
//
// A program inherits the basic variables such as PATH and HOME, and no other variable of
// the delegate. Then come [Config].Env, the envs of the task, and finally the variables
// of a CGI call with RUN_AS_CGI=true. Go programs ignore HTTP_PROXY in a CGI call;
// HTTPS_PROXY works.
//
// The standard error of the program goes to the log of the task while it runs. The
// secrets of the task are masked there and in errors. They are not masked in answers,
// because a task may exist to fetch a secret.
//
// The answer of the task is an [Answer], whatever the status of the program is. A program
// may also write an Answer itself, as JSON. The task fails if the program
//
//   - exits with a code other than 0, or is killed by a signal
//   - writes less than its Content-Length, invalid headers, or more than about 23 MiB
//
// After the time-out of the task, or an abort, the process group of the program gets
// SIGTERM and, after [Config].Grace, SIGKILL. Other processes of the group may finish
// their output for one second after the end of the program; then they are killed. A
// program that starts a new session cannot be killed in this way.
//
// Start reading at cgi.go.
package cgi
