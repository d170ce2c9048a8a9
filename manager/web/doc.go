// Package web is the page of a manager: runs, stages, the queue, delegates and logs in a browser.
//
// The page calls the same API, event streams and log service as any other client. New returns one handler
// for the page and for the calls that the page makes, so it can be mounted at any path:
//
//	page := web.New(web.Config{API: api, Logs: logs})
//	http.Handle("/ui/", http.StripPrefix("/ui", page)) // or routes.Mount("/ui", page) of chi
//
// Everything that the page needs is part of the program; it loads nothing from elsewhere. docs/page.md describes the page.
//
// Start reading at web.go. The page itself is in assets: main.js starts it.
package web
