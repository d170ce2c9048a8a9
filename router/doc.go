// Package router sends each task to the handler of its type.
//
//	r := router.New(router.RouteMap{
//		"hello": task.HandlerFunc(func(ctx context.Context, req *task.Request[string]) (string, error) {
//			return "hello " + req.Data, nil
//		}),
//	}, router.WithMiddleware(router.Recover(log), router.Log(log)))
//
// The [Router] is an [http.Handler], and a middleware is a
// func(http.Handler) http.Handler, so whatever was written for net/http or chi
// fits (SPEC R1). Start reading at router.go; each middleware has its own file.
package router
