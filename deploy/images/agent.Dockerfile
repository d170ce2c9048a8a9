# The agent, which each stage's pod takes from here. "make images" builds it.
FROM scratch
COPY agent /agent
ENTRYPOINT ["/agent"]
