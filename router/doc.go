// Package router gives each task to the handler of its type.
//
//	hello := task.HandlerFunc(func(ctx context.Context, req *task.Request[string]) (string, error) {
//		return "hello " + req.Data, nil
//	})
//	r := router.New(router.RouteMap{"hello": hello}.Merge(stages.Routes()), router.Standard(log))
//
// The [Router] is an [http.Handler], and a middleware is a
// func(http.Handler) http.Handler, so middleware for net/http and chi fits (rule
// R1). [Standard] has the supplied middleware in the right order. Start reading at
// router.go; each middleware has its own file.
package router
