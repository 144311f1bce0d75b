"""Both clients with the same calls: that for asyncio runs in a loop of its own, and each call waits for it."""

import asyncio
import inspect
import socket
import threading

import antiphon
from peer import WITHIN

KINDS = (antiphon.aio.Client, antiphon.aio.Events, antiphon.aio.Guard, antiphon.aio.Map, antiphon.aio.Counter)


class Waits:
    def __init__(self, loop, of):
        self.loop, self.of = loop, of

    def __getattr__(self, name):
        value = getattr(self.of, name)
        return self.call(value) if callable(value) else value

    def call(self, function):
        async def run(*args, **fields):
            came = function(*args, **fields)
            return await came if inspect.isawaitable(came) else came

        def wait(*args, **fields):
            came = asyncio.run_coroutine_threadsafe(run(*args, **fields), self.loop).result(WITHIN)
            return Waits(self.loop, came) if isinstance(came, KINDS) else came
        return wait


class Threads:
    connect = staticmethod(antiphon.connect)

    @staticmethod
    def cut(client):
        client._hang_up()

    @staticmethod
    def handler(function):
        return function


class Tasks:
    def setUp(self):
        self.loop = asyncio.new_event_loop()
        self.runs = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.runs.start()
        self.addCleanup(self.stop)
        self.connect = Waits(self.loop, None).call(antiphon.aio.connect)

    def stop(self):
        async def stop():
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        asyncio.run_coroutine_threadsafe(stop(), self.loop).result(WITHIN)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.runs.join(WITHIN)
        self.loop.close()

    @staticmethod
    def cut(client):
        client._writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    @staticmethod
    def handler(function):
        async def waits(asking):
            return await asyncio.to_thread(function, asking)
        return waits
